//! Unix sockets.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};

use super::{BoxFuture, Listener, Named, Network, PeerIdentity, Socket, Source, explain};

/// Unix sockets: an address is the path of the socket's file.
///
/// Only the listening user can dial it (permissions 0600). The file is removed with the listener. A file left
/// behind by a program that died is replaced; a file at which a listener still answers, or that is not a
/// socket, is not.
///
/// Listening needs a file system with hard links, and a path some twenty bytes shorter than the system's
/// limit of about a hundred.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unix;

impl Network for Unix {
    fn scheme(&self) -> &'static str {
        "unix"
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let stream = UnixStream::connect(address)
                .await
                .map_err(|error| explain(&error, format_args!("cannot connect to `unix:{address}`")))?;
            let identity = stream.peer_cred().ok().as_ref().map(process);
            Ok(Box::new(Named {
                stream,
                peer: format!("unix:{address}"),
                is_local: true,
                host: host(),
                identity,
                source: Source::Unknown,
            }) as Box<dyn Socket>)
        })
    }

    fn is_local(&self, _: &str) -> bool {
        true
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = bind(Path::new(address)).await.map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => io::Error::new(
                    error.kind(),
                    format!(
                        "cannot listen on `unix:{address}`: another program, or another node of this one, has the \
                         path; end that one, or choose another path"
                    ),
                ),
                io::ErrorKind::AlreadyExists => io::Error::new(
                    error.kind(),
                    format!(
                        "cannot listen on `unix:{address}`: the path exists and is not a socket; choose another path"
                    ),
                ),
                _ => explain(&error, format_args!("cannot listen on `unix:{address}`")),
            })?;
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }
}

struct Bound {
    // Dropped first: while the listener exists no other program touches the file.
    file: OwnedFile,
    listener: UnixListener,
}

impl Listener for Bound {
    fn accept<'a>(&'a mut self) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let (stream, _) = self.listener.accept().await?;
            let peer = stream.peer_cred().ok();
            let source = peer.map_or(Source::Unknown, |peer| Source::User(peer.uid()));
            let identity = peer.as_ref().map(process);
            let pid = peer.as_ref().and_then(UCred::pid);
            let path = self.file.path.display();
            let peer = match pid {
                Some(pid) => format!("unix:{path} (process {pid})"),
                None => format!("unix:{path}"),
            };
            Ok(Box::new(Named { stream, peer, is_local: true, host: host(), identity, source }) as Box<dyn Socket>)
        })
    }

    fn address(&self) -> String {
        self.file.path.display().to_string()
    }
}

/// The file of a socket of ours. Its drop removes the file, unless the name belongs to another file by then.
struct OwnedFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl OwnedFile {
    fn new(path: PathBuf) -> io::Result<Self> {
        let identity = identity(&path)?;
        Ok(Self { path, identity })
    }
}

impl Drop for OwnedFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // If that fails, the file is stale, and the next listener replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A socket's file appears under its own name complete, listening and with its permissions: it is made under
/// another name and then linked, which never replaces a file. So of any number of programs that start
/// together one listens, and the others find it.
async fn bind(path: &Path) -> io::Result<Bound> {
    let made = beside(path);
    let listener = UnixListener::bind(&made)?;
    let made = OwnedFile::new(made)?;
    fs::set_permissions(&made.path, fs::Permissions::from_mode(0o600))?;
    loop {
        match fs::hard_link(&made.path, path) {
            Ok(()) => return Ok(Bound { file: OwnedFile::new(path.to_owned())?, listener }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => clear(path, &made).await?,
            Err(error) => return Err(error),
        }
    }
}

/// Removes the file of a dead listener. If the file is already gone, that is fine. `made`: a listening socket
/// of ours.
///
/// # Errors
/// `AddrInUse` if another program listens, or is about to; `AlreadyExists` if it is not a socket.
async fn clear(path: &Path, made: &OwnedFile) -> io::Result<()> {
    if is_dead(path).await? { remove(path, made).await } else { Ok(()) }
}

/// Removes a file that was dead just now: another may have taken its place since. So only the holder of the
/// *claim* removes a file, and checks it again first. The claim is a second name of the holder's own socket:
/// no other program can make it meanwhile, and it shows whether its maker still lives.
async fn remove(path: &Path, made: &OwnedFile) -> io::Result<()> {
    let claim = suffixed(path, ".claim");
    match fs::hard_link(&made.path, &claim) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // The claim's holder listens in a moment, or has found another listener.
            return if is_dead(&claim).await? { remove_abandoned(&claim).await } else { Ok(()) };
        }
        Err(error) => return Err(error),
    }
    let _claim = OwnedFile::new(claim)?;
    // It may be another file by now.
    if is_dead(path).await? { fs::remove_file(path) } else { Ok(()) }
}

/// Removes the claim of a program that died while it held it. Another program may have done so meanwhile, and
/// have its own claim there: once renamed, the file is ours alone, and can be checked again.
async fn remove_abandoned(claim: &Path) -> io::Result<()> {
    let aside = beside(claim);
    match fs::rename(claim, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed?,
    }
    let dead = is_dead(&aside).await;
    if dead.is_err() {
        // If yet another claim exists by now, that one stays.
        let _ = fs::hard_link(&aside, claim);
    }
    fs::remove_file(&aside)?;
    dead.map(drop)
}

/// Whether a dead listener has left this file. `false`: the file does not exist.
///
/// # Errors
/// `AddrInUse` if a listener answers; `AlreadyExists` if it is not a socket.
async fn is_dead(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(io::ErrorKind::AlreadyExists.into()),
        _ => {}
    }
    match UnixStream::connect(path).await.map_err(|error| error.kind()) {
        Err(io::ErrorKind::ConnectionRefused) => Ok(true),
        Err(io::ErrorKind::NotFound) => Ok(false),
        // Only a refusal shows that no listener exists: a full backlog, or a lack of rights, does not.
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// An unused name in the same folder.
fn beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    suffixed(path, &format!(".{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The kernel's information on the process at the other end.
fn process(peer: &UCred) -> PeerIdentity {
    PeerIdentity::Process { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() }
}

/// Where the other end may listen on TCP.
fn host() -> Option<String> {
    Some("127.0.0.1".to_owned())
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::net::contract;

    /// A folder of its own, removed at the end; it must be empty then.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dunlin-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn socket(&self) -> String {
            self.0.join("s").display().to_string()
        }

        fn files(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_dialled_socket_is_accepted_and_carries_bytes_both_ways() {
        let folder = Folder::new("echo");
        crate::block_on(contract::echoes(&Unix, &folder.socket()));
        assert_eq!(folder.files(), 0);
    }

    #[test]
    fn only_the_user_may_dial() {
        let folder = Folder::new("mode");
        let _listener = crate::block_on(Unix.listen(&folder.socket())).unwrap();
        assert_eq!(fs::metadata(folder.socket()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(folder.files(), 1);
    }

    /// All sockets of one user are one source, whichever process has them; a dialled socket has none.
    #[test]
    fn source_of_accepted_unix_socket_is_the_dialling_user() {
        let folder = Folder::new("user");
        crate::block_on(async {
            let mut listener = Unix.listen(&folder.socket()).await.unwrap();
            let dialled = Unix.dial(&folder.socket()).await.unwrap();
            let accepted = listener.accept().await.unwrap();
            assert_eq!(accepted.source(), Source::User(rustix::process::getuid().as_raw()));
            assert_eq!(dialled.source(), Source::Unknown);
        });
    }

    #[test]
    fn both_ends_know_the_process_at_the_other() {
        let folder = Folder::new("identity");
        crate::block_on(async {
            let mut listener = Unix.listen(&folder.socket()).await.unwrap();
            let dialled = Unix.dial(&folder.socket()).await.unwrap();
            let accepted = listener.accept().await.unwrap();
            let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
            let pid = i32::try_from(std::process::id()).ok();
            let this = Some(PeerIdentity::Process { uid, gid, pid });
            assert_eq!([accepted.identity(), dialled.identity()], [this.clone(), this]);
        });
    }

    #[test]
    fn listen_error_reports_unix_path_in_use_and_first_listener_stays() {
        let folder = Folder::new("in-use");
        let error = crate::block_on(contract::is_in_use(&Unix, &folder.socket()));
        assert!(error.contains(&folder.socket()) && error.contains("choose another path"), "{error}");
        assert_eq!(folder.files(), 0);
    }

    #[test]
    fn dropped_listener_refuses_and_removes_its_file() {
        let folder = Folder::new("dropped");
        crate::block_on(contract::refuses_when_dropped(&Unix, &folder.socket()));
        assert_eq!(folder.files(), 0);
    }

    #[test]
    fn the_file_of_a_dead_listener_is_replaced() {
        let folder = Folder::new("stale");
        drop(std::os::unix::net::UnixListener::bind(folder.socket()).unwrap());
        assert_eq!(folder.files(), 1);
        crate::block_on(contract::echoes(&Unix, &folder.socket()));
        assert_eq!(folder.files(), 0);
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let folder = Folder::new("file");
        fs::write(folder.socket(), "dear").unwrap();
        let error = crate::block_on(Unix.listen(&folder.socket())).err().unwrap();
        assert!(error.to_string().contains("not a socket"), "{error}");
        assert_eq!(fs::read_to_string(folder.socket()).unwrap(), "dear");
        assert_eq!(folder.files(), 1);
    }

    #[test]
    fn a_listener_leaves_the_file_of_another_alone() {
        let folder = Folder::new("another");
        crate::block_on(async {
            let first = Unix.listen(&folder.socket()).await.unwrap();
            fs::remove_file(folder.socket()).unwrap();
            let second = Unix.listen(&folder.socket()).await.unwrap();
            drop(first);
            Unix.dial(&folder.socket()).await.unwrap();
            drop(second);
        });
        assert_eq!(folder.files(), 0);
    }

    #[test]
    fn removal_of_abandoned_claim_spares_its_successor() {
        let folder = Folder::new("second-look");
        crate::block_on(async {
            let listener = Unix.listen(&folder.socket()).await.unwrap();
            let error = remove_abandoned(Path::new(&folder.socket())).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            Unix.dial(&folder.socket()).await.unwrap();
            drop(listener);
        });
        assert_eq!(folder.files(), 0);
    }

    #[test]
    fn one_of_many_successors_of_a_dead_listener_listens() {
        let folder = Folder::new("race");
        drop(std::os::unix::net::UnixListener::bind(folder.socket()).unwrap());
        crate::block_on(async {
            let starting: Vec<_> = (0..16)
                .map(|_| {
                    let path = folder.socket();
                    tokio::spawn(async move { Unix.listen(&path).await })
                })
                .collect();
            let mut listening = Vec::new();
            for started in starting {
                match started.await.unwrap() {
                    Ok(listener) => listening.push(listener),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}"),
                }
            }
            assert_eq!(listening.len(), 1);
            Unix.dial(&folder.socket()).await.unwrap();
        });
        assert_eq!(folder.files(), 0);
    }

    /// A program has seen a dead listener's file, and comes to remove it when another listener is there.
    #[test]
    fn a_latecomer_that_replaces_a_dead_listener_does_not_touch_its_successor() {
        let folder = Folder::new("late");
        let path = PathBuf::from(folder.socket());
        crate::block_on(async {
            let successor = Unix.listen(&folder.socket()).await.unwrap();
            let made = folder.0.join("made");
            let listener = UnixListener::bind(&made).unwrap();
            let made = OwnedFile::new(made).unwrap();
            // While the successor's file is in its place, no link of that name can be made.
            let done = Arc::new(AtomicBool::new(false));
            let (link, place, end) = (made.path.clone(), path.clone(), done.clone());
            let watches = std::thread::spawn(move || {
                let mut taken = false;
                while !end.load(Ordering::Relaxed) {
                    taken |= fs::hard_link(&link, &place).is_ok();
                }
                taken
            });
            for _ in 0..1000 {
                let late = remove(&path, &made).await;
                assert_eq!(late.unwrap_err().kind(), io::ErrorKind::AddrInUse);
            }
            done.store(true, Ordering::Relaxed);
            let taken = watches.join().unwrap();
            assert!(!taken, "its file was away for a moment");
            drop((successor, made, listener));
        });
        assert_eq!(folder.files(), 0);
    }

    /// A program was killed while it replaced a listener that had been killed.
    #[test]
    fn a_claim_that_a_dead_program_has_left_is_replaced() {
        let folder = Folder::new("claim");
        for path in [folder.socket(), format!("{}.claim", folder.socket())] {
            drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        }
        crate::block_on(contract::echoes(&Unix, &folder.socket()));
        assert_eq!(folder.files(), 0);
    }

    #[test]
    fn dial_error_reports_missing_unix_path() {
        let error = crate::block_on(Unix.dial("/nowhere/krill")).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("`unix:/nowhere/krill`"), "{error}");
    }
}
