//! Files, read and written by blocking calls.
//!
//! Nothing can interrupt a read from a disk, so a call whose handle is dropped runs on, and occupies a thread
//! of the [pool](mod@crate::blocking), until the system answers. The result of such a read is dropped; such a
//! write may have been done.

use std::fs;
use std::io;
#[cfg(unix)]
use std::os::unix::fs::FileExt;
#[cfg(windows)]
use std::os::windows::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_core::{Receiver, Sender, channel};

use super::spawn;
use crate::Process;
use crate::blocking::{Blocking, Stop, blocking};

/// An open file. Its operations name the place in the file, so handles can be cloned and used at the same
/// time.
///
/// Each operation is a [blocking call](crate::blocking::Blocking): awaited, a branch of a choice (`&mut`
/// handle), or terminated. It starts at once, whether or not it is awaited.
///
/// # Examples
/// ```
/// use dunlin::io::{Bytes, file};
/// # dunlin::block_on(async {
/// # let path = std::env::temp_dir().join(format!("dunlin-file-{}", std::process::id()));
/// # let remove = path.clone();
/// let file = file::create(path).await??;
/// file.write_at(0, Bytes::from("krill and squid")).await??;
/// assert_eq!(file.read_at(10, 4096).await??, "squid");
/// assert_eq!(file.length().await??, 15);
/// # std::fs::remove_file(remove)?;
/// # Ok::<(), dunlin::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct File(Arc<fs::File>);

/// Opens a file to read it.
///
/// # Errors
/// Of the call: [`Error::Refused`](crate::Error::Refused) if the pool is full. Within: those of the system.
///
/// # Panics
/// Outside a tokio runtime, as all operations of this module.
#[track_caller]
pub fn open(path: impl Into<PathBuf>) -> Blocking<io::Result<File>> {
    open_with(fs::OpenOptions::new().read(true).clone(), path)
}

/// Creates a file, or empties an existing one, to write and read it.
///
/// # Errors
/// As of [`open`].
#[track_caller]
pub fn create(path: impl Into<PathBuf>) -> Blocking<io::Result<File>> {
    open_with(fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).clone(), path)
}

/// Opens a file with options of the standard library.
///
/// # Errors
/// As of [`open`].
#[track_caller]
pub fn open_with(options: fs::OpenOptions, path: impl Into<PathBuf>) -> Blocking<io::Result<File>> {
    let path = path.into();
    blocking(move |_| options.open(path).map(File::from))
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> Self {
        Self(Arc::new(file))
    }
}

impl File {
    /// Reads at most `max` bytes from the place `at`: fewer near the end, and none from the end on. A read
    /// that is terminated stops after 8 MiB, with the bytes that it has.
    ///
    /// # Errors
    /// In the inner result those of the system, and [`OutOfMemory`](io::ErrorKind::OutOfMemory) if the
    /// program has no memory for the bytes.
    #[track_caller]
    pub fn read_at(&self, at: u64, max: usize) -> Blocking<io::Result<Bytes>> {
        let file = self.0.clone();
        blocking(move |stop| read(&file, at, max, stop))
    }

    /// Writes all of `bytes` to the place `at`. If it fails, or the program ends, a part may have been
    /// written.
    #[track_caller]
    pub fn write_at(&self, at: u64, bytes: impl Into<Bytes>) -> Blocking<io::Result<()>> {
        let (file, bytes) = (self.0.clone(), bytes.into());
        blocking(move |_| write_all(&file, at, &bytes))
    }

    /// Its length in bytes.
    #[track_caller]
    pub fn length(&self) -> Blocking<io::Result<u64>> {
        let file = self.0.clone();
        blocking(move |_| file.metadata().map(|metadata| metadata.len()))
    }

    /// Waits until the written bytes are on the disk.
    #[track_caller]
    pub fn sync(&self) -> Blocking<io::Result<()>> {
        let file = self.0.clone();
        blocking(move |_| file.sync_all())
    }

    /// Makes a receiver of its content from the place `at` to the end, and a process that reads one piece of
    /// up to 64 KiB ahead. An error poisons the channel, with its text.
    ///
    /// # Examples
    /// ```
    /// use dunlin::io::file;
    /// # dunlin::block_on(async {
    /// let mut pieces = file::open(std::env::current_exe()?).await??.into_receiver(0);
    /// let mut length = 0;
    /// while let Ok(piece) = pieces.recv().await {
    ///     length += piece.len() as u64;
    /// }
    /// assert_eq!(length, std::fs::metadata(std::env::current_exe()?)?.len());
    /// # Ok::<(), dunlin::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn into_receiver(self, at: u64) -> Receiver<Bytes> {
        let (mut tx, rx) = channel();
        drop(spawn(async move {
            let mut at = at;
            loop {
                let file = self.0.clone();
                let read = in_turn(move |stop| read(&file, at, PIECE_MAX, stop)).await;
                match read {
                    Ok(piece) if piece.is_empty() => return,
                    Ok(piece) => {
                        at += piece.len() as u64;
                        if tx.send(piece).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => return tx.poison(error.to_string()),
                }
            }
        }));
        rx
    }

    /// Makes a sender, and a process that writes the pieces sent, from the place `at` on.
    ///
    /// The process ends when the sender has been dropped and all is written. It returns the place behind the
    /// last byte. An error poisons the channel, with its text.
    pub fn into_sender(self, at: u64) -> (Sender<Bytes>, Process<io::Result<u64>>) {
        let (tx, mut rx) = channel::<Bytes>();
        let process = spawn(async move {
            let mut at = at;
            loop {
                let bytes = match rx.recv().await {
                    Ok(bytes) => bytes,
                    Err(error) if error.is_closed() => return Ok(at),
                    Err(error) => return Err(io::Error::other(error)),
                };
                let (file, length) = (self.0.clone(), bytes.len() as u64);
                if let Err(error) = in_turn(move |_| write_all(&file, at, &bytes)).await {
                    rx.poison(error.to_string());
                    return Err(error);
                }
                at += length;
            }
        });
        (tx, process)
    }
}

/// From some KiB on, a call is worth the hand-over to a thread.
const PIECE_MAX: usize = 64 << 10;

/// The maximum bytes of one system call.
const STEP_MAX: usize = 8 << 20;

/// Runs a call when the pool has room for it.
async fn in_turn<R: Send + 'static>(call: impl FnOnce(&Stop) -> io::Result<R> + Send + 'static) -> io::Result<R> {
    let place = crate::blocking::room().await;
    place.blocking(call).await.unwrap_or_else(|error| Err(io::Error::other(error.to_string())))
}

fn read(file: &fs::File, at: u64, max: usize, stop: &Stop) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    // In steps, as the caller may ask for much more than the file has.
    while bytes.len() < max {
        let (begin, step) = (bytes.len(), STEP_MAX.min(max - bytes.len()));
        bytes.try_reserve(step).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.resize(begin + step, 0);
        let read = loop {
            match read_at(file, &mut bytes[begin..], at + begin as u64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        bytes.truncate(begin + read);
        // A call that the caller has given up must not hold a thread for the rest of a large file.
        if read < step || bytes.len() < max && stop.asked() {
            break;
        }
    }
    Ok(bytes.into())
}

fn write_all(file: &fs::File, mut at: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match write_at(file, bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                at += written as u64;
                bytes = &bytes[written..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(unix)]
fn read_at(file: &fs::File, room: &mut [u8], at: u64) -> io::Result<usize> {
    file.read_at(room, at)
}

#[cfg(windows)]
fn read_at(file: &fs::File, room: &mut [u8], at: u64) -> io::Result<usize> {
    file.seek_read(room, at)
}

#[cfg(unix)]
fn write_at(file: &fs::File, bytes: &[u8], at: u64) -> io::Result<usize> {
    file.write_at(bytes, at)
}

#[cfg(windows)]
fn write_at(file: &fs::File, bytes: &[u8], at: u64) -> io::Result<usize> {
    file.seek_write(bytes, at)
}
