//! How much memory there is.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The memory that is assumed if the system does not report it.
const UNKNOWN: u64 = 4 << 30;

/// The memory that this process may use, in bytes: the machine's, or less if its control group or one around
/// that has a limit.
pub(crate) fn memory_here() -> u64 {
    in_tree(Path::new("/"))
}

/// The memory according to `/proc` and `/sys/fs/cgroup` under this folder.
fn in_tree(root: &Path) -> u64 {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| total(&text));
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let groups = groups.lines().filter_map(|line| limit(&root.join("sys/fs/cgroup"), line));
    groups.chain([machine.unwrap_or(UNKNOWN)]).min().unwrap_or(UNKNOWN)
}

/// The machine's memory according to `/proc/meminfo`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The smallest limit of a group and its ancestors. A line of `/proc/self/cgroup` is
/// `number:controllers:path`, and version 2 has no controllers there.
fn limit(mounted: &Path, line: &str) -> Option<u64> {
    let (_, line) = line.split_once(':')?;
    let (controllers, group) = line.split_once(':')?;
    let (top, file) = match controllers {
        "" => (mounted.to_owned(), "memory.max"),
        named if named.split(',').any(|one| one == "memory") => (mounted.join("memory"), "memory.limit_in_bytes"),
        _ => return None,
    };
    // In a container, a group of the host may be `/..`, or have a path that does not exist: then the top is
    // the container's own.
    let parts: Vec<_> = Path::new(group).components().filter(|part| *part != Component::RootDir).collect();
    let is_below = parts.iter().all(|part| matches!(part, Component::Normal(_)));
    let groups =
        (0..=if is_below { parts.len() } else { 0 }).map(|depth| top.join(parts[..depth].iter().collect::<PathBuf>()));
    groups.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_kilobytes() {
        assert_eq!(total("MemTotal:       24117248 kB\nMemFree: 1 kB\n"), Some(23 << 30));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(total("MemTotal: much\n"), None);
    }

    /// The memory on a made-up system: its groups, and the limits of some folders under `/sys/fs/cgroup`.
    fn limited(groups: &str, limits: &[(&str, &str)]) -> u64 {
        let root = std::env::temp_dir().join(format!("dunlin-memory-{:032x}", crate::world::random()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/meminfo", "MemTotal:       8000 kB\n");
        write("proc/self/cgroup", groups);
        for (path, limit) in limits {
            write(&format!("sys/fs/cgroup/{path}"), limit);
        }
        let found = in_tree(&root);
        fs::remove_dir_all(&root).unwrap();
        found
    }

    const MACHINE: u64 = 8000 << 10;

    #[test]
    fn without_a_limit_the_memory_is_the_machines() {
        assert_eq!(limited("0::/\n", &[]), MACHINE);
        assert_eq!(limited("0::/a\n", &[("a/memory.max", "max\n"), ("memory.max", "999999999999\n")]), MACHINE);
        assert_eq!(in_tree(Path::new("/nothing/is/here")), UNKNOWN);
    }

    #[test]
    fn the_own_control_group_and_those_around_it_limit_the_memory() {
        let service = "0::/system.slice/weather.service\n";
        let (own, slice) = ("system.slice/weather.service/memory.max", "system.slice/memory.max");
        assert_eq!(limited(service, &[(own, "5000\n")]), 5000);
        assert_eq!(limited(service, &[(own, "max\n"), (slice, "4000\n")]), 4000);
        assert_eq!(limited(service, &[(own, "5000\n"), (slice, "4000\n"), ("memory.max", "4500\n")]), 4000);
        // Another group's limit does not apply to this process.
        assert_eq!(limited(service, &[("user.slice/memory.max", "1000\n")]), MACHINE);
    }

    #[test]
    fn control_groups_of_version_1_limit_the_memory() {
        let groups = "5:cpu,cpuacct:/cpu\n4:memory:/jobs/7\n1:name=systemd:/x\n0::/y\n";
        let (own, unlimited) = ("memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limited(groups, &[(own, "6000\n"), ("memory/memory.limit_in_bytes", unlimited)]), 6000);
        assert_eq!(limited(groups, &[(own, unlimited), ("memory/jobs/memory.limit_in_bytes", "3000\n")]), 3000);
        assert_eq!(limited(groups, &[(own, unlimited), ("cpu/memory.limit_in_bytes", "3000\n")]), MACHINE);
        assert_eq!(limited("4:memory,hugetlb:/a\n", &[("memory/a/memory.limit_in_bytes", "3000\n")]), 3000);
    }

    /// A container sees its own group at the top, and may be given the path that the group has on the host.
    #[test]
    fn container_limit_is_read_at_the_top() {
        for groups in ["0::/\n", "0::/docker/0123\n", "0::/../../elsewhere\n"] {
            assert_eq!(limited(groups, &[("memory.max", "2000\n")]), 2000, "{groups}");
        }
        let limits = &[("memory/memory.limit_in_bytes", "2000\n")];
        assert_eq!(limited("4:memory:/docker/0123\n", limits), 2000);
    }

    #[test]
    fn malformed_control_groups_are_no_limit() {
        for groups in ["", "0", "0:", "::", "0::\n:::", "4:memory:../../proc/self", "0::a/b\n"] {
            assert_eq!(limited(groups, &[("a/memory.max", "much")]), MACHINE, "{groups:?}");
        }
    }
}
