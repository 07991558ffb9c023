//! Files: how the server finds them beneath the root, keeps them open, and reads them without waiting where
//! possible.

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::condition::Validators;
use super::pool::{is_scarce, on_pool};
use super::status::Status;

/// The files beneath a directory.
#[derive(Debug)]
pub(crate) struct Files {
    root: Arc<OwnedFd>,
    open: Mutex<HashMap<String, (Instant, Found)>>,
    open_max: usize,
}

/// The object at a path.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    File(Arc<Opened>),
    /// A directory; its own path ends with a slash.
    Directory,
}

/// An open file. Length and validators belong to the descriptor, whatever happens to the path.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: Arc<std::fs::File>,
    pub(crate) length: u64,
    pub(crate) validators: Validators,
    pub(crate) content_type: String,
    manner: Manner,
}

/// How to read a piece that may be in the page cache.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// In place, if the system reports that the read need not wait.
    NoWait,
    /// In place: the file system has no disk.
    Memory,
    Pool,
}

/// How long an open file is used without checking its path again.
const FRESH: Duration = Duration::from_secs(1);

/// The end of the year 9999, the last one that a header can have. A file may have any time.
const MODIFIED_MAX: u64 = 253_402_300_799;

/// How long an open file stays open without a request.
const KEPT: Duration = Duration::from_secs(10);

/// Bytes of a piece: larger pieces would delay other connections, smaller ones need more calls.
pub(crate) const PIECE_MAX: usize = 64 << 10;

impl Files {
    /// The files beneath `root`, of which `open_max` stay open.
    pub(crate) fn new(root: &Path, open_max: usize) -> io::Result<Self> {
        let root = rustix::fs::open(root, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?;
        Ok(Self { root: Arc::new(root), open: Mutex::default(), open_max })
    }

    /// Finds the object at a decoded path.
    pub(crate) async fn find(&self, path: &str, patience: Duration) -> Result<Found, Status> {
        let now = Instant::now();
        if let Some((looked, found)) = self.open.lock().unwrap_or_else(PoisonError::into_inner).get(path)
            && now.duration_since(*looked) < FRESH
        {
            return Ok(found.clone());
        }
        let (root, relative) = (self.root.clone(), path.trim_start_matches('/').to_owned());
        let found = on_pool(patience, move |_| open(&root, &relative)).await.map_err(|error| match error.kind() {
            _ if is_scarce(&error) => Status::ServiceUnavailable,
            io::ErrorKind::PermissionDenied => Status::Forbidden,
            // Also a path that leads out of the root.
            _ if error.raw_os_error().is_some() => Status::NotFound,
            _ => Status::InternalServerError,
        })?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // A deleted file keeps its disk space while it is open.
        open.retain(|_, (looked, _)| now.duration_since(*looked) < KEPT);
        if open.len() >= self.open_max {
            open.clear();
        }
        open.insert(path.to_owned(), (now, found.clone()));
        Ok(found)
    }
}

/// Opens a path beneath `root`, and nothing else.
fn open(root: &OwnedFd, path: &str) -> io::Result<Found> {
    let path = if path.is_empty() { "." } else { path };
    // A FIFO must not block the thread.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let fd = match rustix::fs::openat2(root, path, flags, Mode::empty(), beneath) {
        // An old kernel, or a sandbox that rejects the call.
        Err(Errno::NOSYS | Errno::PERM) => open_without_links(root, path, flags)?,
        opened => opened?,
    };
    let file = std::fs::File::from(fd);
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Ok(Found::Directory);
    }
    if !metadata.is_file() {
        return Err(Errno::ACCESS.into());
    }
    let modified = metadata.modified()?;
    let nanoseconds = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let modified = UNIX_EPOCH + Duration::from_secs(nanoseconds.as_secs().min(MODIFIED_MAX));
    let validators = Validators {
        tag: format!("\"{:x}-{:x}-{:x}\"", metadata.ino(), metadata.len(), nanoseconds.as_nanos()),
        modified,
        modified_text: httpdate::fmt_http_date(modified),
    };
    let content_type = mime_guess::from_path(path).first_or_octet_stream().to_string();
    let text = if content_type.starts_with("text/") { "; charset=utf-8" } else { "" };
    Ok(Found::File(Arc::new(Opened {
        manner: manner(&file),
        length: metadata.len(),
        validators,
        content_type: format!("{content_type}{text}"),
        file: Arc::new(file),
    })))
}

/// Opens one component after the other, none of which may be a symbolic link.
pub(crate) fn open_without_links(root: &OwnedFd, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let mut at: Option<OwnedFd> = None;
    let mut components = path.split('/').filter(|component| !component.is_empty()).peekable();
    while let Some(component) = components.next() {
        let dir = at.as_ref().unwrap_or(root);
        let flags = if components.peek().is_some() || path.ends_with('/') {
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
        } else {
            flags
        };
        at = Some(rustix::fs::openat(dir, component, flags | OFlags::NOFOLLOW, Mode::empty())?);
    }
    at.ok_or_else(|| Errno::NOENT.into())
}

/// Not every file system reports whether a read would wait; those without a disk never wait.
fn manner(file: &std::fs::File) -> Manner {
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    match read_now(file, &mut [0], 0) {
        Ok(_) | Err(Errno::AGAIN) => Manner::NoWait,
        Err(_) if rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type == TMPFS) => Manner::Memory,
        Err(_) => Manner::Pool,
    }
}

/// Reads what the page cache has.
fn read_now(file: &std::fs::File, piece: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    rustix::io::preadv2(file, &mut [IoSliceMut::new(piece)], at, ReadWriteFlags::NOWAIT)
}

impl Opened {
    /// Appends one piece of `range` to `out`, and returns its length: 0 if the file has become shorter.
    pub(crate) async fn read(&self, out: &mut Vec<u8>, range: &Range<u64>, patience: Duration) -> io::Result<usize> {
        let length = usize::try_from(range.end - range.start).unwrap_or(PIECE_MAX).min(PIECE_MAX);
        let begin = out.len();
        out.resize(begin + length, 0);
        let read = match self.manner {
            Manner::NoWait => read_now(&self.file, &mut out[begin..], range.start).ok(),
            Manner::Memory => Some(self.file.read_at(&mut out[begin..], range.start)?),
            Manner::Pool => None,
        };
        let read = match read {
            Some(read) => read,
            None => {
                let (file, at, mut piece) = (self.file.clone(), range.start, std::mem::take(out));
                let (piece, read) =
                    on_pool(patience, move |_| file.read_at(&mut piece[begin..], at).map(|read| (piece, read))).await?;
                *out = piece;
                read
            }
        };
        out.truncate(begin + read);
        Ok(read)
    }
}
