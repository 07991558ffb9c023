//! Which of the name services at the default ports of this host are this user's.
//!
//! Any process of the host may listen at those ports and claim to belong to an application. A name service
//! that finds another one of its application at an earlier port leaves the names to that one, but only if it
//! belongs to the same user. So each service writes its id, and its application, into a file that only this
//! user can write. The id is no secret: a node proves that it has that id, and a file of another user is
//! ignored. The application tells a program that a service which does not answer is the one that it looks
//! for.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dunlin_proto::id::NodeId;
use rustix::fs::{FlockOperation, flock};

/// The longest file that is read: an id, and the name of an application.
const BYTES_MAX: u64 = 128;

/// The files of one user, one for each port.
#[derive(Clone, Debug)]
pub(super) struct Own {
    folder: PathBuf,
    user: u32,
}

/// The file of a running name service. Dropping the mark removes it.
#[derive(Debug)]
pub(super) struct Mark {
    own: Own,
    address: String,
    node: NodeId,
    /// Locked for as long as the process lives, however it ends.
    _lock: File,
}

impl Own {
    /// The files of this process's user: in `XDG_RUNTIME_DIR`, or in a folder of the user's own among the
    /// temporary files.
    pub(super) fn of_user() -> Self {
        let user = rustix::process::geteuid().as_raw();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let folder = match runtime {
            Some(runtime) => runtime.join("dunlin"),
            None => std::env::temp_dir().join(format!("dunlin-{user}")),
        };
        Self { folder, user }
    }

    #[cfg(test)]
    pub(super) fn of(folder: &Path, user: u32) -> Self {
        Self { folder: folder.to_owned(), user }
    }

    /// Records that this node serves names at this address, until the mark is dropped.
    pub(super) fn mark(&self, application: &str, address: &str, node: NodeId) -> io::Result<Mark> {
        match std::fs::DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.check(&self.folder)?;
        let (file, new) = (self.file(address), self.folder.join(format!("{:032x}.new", node.0)));
        let _ = std::fs::remove_file(&new);
        let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        write!(out, "{}\n{application}", text_of(node))?;
        flock(&out, FlockOperation::NonBlockingLockExclusive)?;
        std::fs::rename(&new, &file)?;
        Ok(Mark { own: self.clone(), address: address.to_owned(), node, _lock: out })
    }

    /// Whether the name service at this address, which is that node, is this user's.
    pub(super) fn has(&self, address: &str, node: NodeId) -> bool {
        let is_it = |text: String| text.lines().next() == Some(&text_of(node));
        self.open(address).and_then(read).is_ok_and(is_it)
    }

    /// The application of this user's name service at this address. `None`: none runs there; it may have been
    /// killed.
    pub(super) fn application_at(&self, address: &str) -> Option<String> {
        let file = self.open(address).ok()?;
        let runs = flock(&file, FlockOperation::NonBlockingLockShared).is_err();
        read(file).ok().filter(|_| runs)?.lines().nth(1).map(str::to_owned)
    }

    fn open(&self, address: &str) -> io::Result<File> {
        let path = self.file(address);
        self.check(&self.folder)?;
        self.check(&path)?;
        File::open(path)
    }

    fn file(&self, address: &str) -> PathBuf {
        let port = address.rsplit(':').next().unwrap_or(address);
        self.folder.join(format!("names-{port}"))
    }

    /// Whether only this user can have made it.
    fn check(&self, path: &Path) -> io::Result<()> {
        let what = std::fs::symlink_metadata(path)?;
        let is_own = what.uid() == self.user && what.mode() & 0o077 == 0 && !what.is_symlink();
        if is_own { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

fn read(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The whole id; texts show only its beginning.
fn text_of(node: NodeId) -> String {
    format!("{:032x}", node.0)
}

impl Drop for Mark {
    fn drop(&mut self) {
        // Another service may have the port by now.
        if self.own.has(&self.address, self.node) {
            let _ = std::fs::remove_file(self.own.file(&self.address));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dunlin-own-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
            Self(path)
        }

        fn own(&self) -> Own {
            Own { folder: self.0.join("dunlin"), ..Own::of_user() }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const AT: &str = "127.0.0.1:7403";

    fn open_to(mode: u32, path: &Path) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_service_is_known_by_its_id_while_it_runs() {
        let folder = Folder::new("known");
        let own = folder.own();
        assert!(!own.has(AT, NodeId(7)));
        let mark = own.mark("weather", AT, NodeId(7)).unwrap();
        assert!(own.has(AT, NodeId(7)) && !own.has(AT, NodeId(8)) && !own.has("127.0.0.1:7404", NodeId(7)));
        assert_eq!(own.application_at(AT).as_deref(), Some("weather"));
        assert_eq!(std::fs::metadata(own.file(AT)).unwrap().permissions().mode() & 0o777, 0o600);
        // The next service at that port, before the first has noticed.
        let next = own.mark("weather", AT, NodeId(8)).unwrap();
        drop(mark);
        assert!(own.has(AT, NodeId(8)));
        drop(next);
        assert!(!own.has(AT, NodeId(8)) && own.application_at(AT).is_none());
    }

    /// A killed service leaves its file, without the lock.
    #[test]
    fn a_service_that_was_killed_is_known_not_to_run() {
        let folder = Folder::new("killed");
        let own = folder.own();
        drop(own.mark("weather", AT, NodeId(7)).unwrap());
        std::fs::write(own.file(AT), format!("{}\nweather", text_of(NodeId(7)))).unwrap();
        open_to(0o600, &own.file(AT));
        assert!(own.has(AT, NodeId(7)));
        assert_eq!(own.application_at(AT), None);
        let _mark = own.mark("weather", AT, NodeId(8)).unwrap();
        assert_eq!(own.application_at(AT).as_deref(), Some("weather"));
    }

    #[test]
    fn file_that_others_could_have_written_is_ignored() {
        let folder = Folder::new("others");
        let own = folder.own();
        let _mark = own.mark("weather", AT, NodeId(7)).unwrap();
        for (path, safe) in [(own.file(AT), 0o600), (own.folder.clone(), 0o700)] {
            open_to(0o777, &path);
            assert!(!own.has(AT, NodeId(7)) && own.application_at(AT).is_none(), "{}", path.display());
            open_to(safe, &path);
            assert!(own.has(AT, NodeId(7)));
        }
        let another = Own { user: own.user + 1, ..own.clone() };
        assert!(!another.has(AT, NodeId(7)));
        // Only root may give files away.
        if own.user == 0 {
            for path in [own.file(AT), own.folder.clone()] {
                std::os::unix::fs::chown(&path, Some(own.user + 1), None).unwrap();
                assert!(!own.has(AT, NodeId(7)) && own.application_at(AT).is_none(), "{}", path.display());
                std::os::unix::fs::chown(&path, Some(own.user), None).unwrap();
                assert!(own.has(AT, NodeId(7)));
            }
        }
        std::os::unix::fs::symlink(own.file(AT), own.folder.join("names-7404")).unwrap();
        assert!(!own.has("127.0.0.1:7404", NodeId(7)));
    }
}
