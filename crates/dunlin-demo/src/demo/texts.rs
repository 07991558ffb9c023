//! The texts of the customers: those built into the command, and any others.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const SHIPPED: [(&str, &str); 6] = [
    ("the-walrus.txt", include_str!("../../texts/the-walrus.txt")),
    ("kubla-khan.txt", include_str!("../../texts/kubla-khan.txt")),
    ("gettysburg.txt", include_str!("../../texts/gettysburg.txt")),
    ("jabberwocky.txt", include_str!("../../texts/jabberwocky.txt")),
    ("the-tyger.txt", include_str!("../../texts/the-tyger.txt")),
    ("ozymandias.txt", include_str!("../../texts/ozymandias.txt")),
];

/// The place of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Text {
    /// Built into the command, under this name.
    Shipped(String),
    /// In a file.
    File(PathBuf),
}

/// Why a file cannot be read as a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Unreadable {
    /// The operating system's error.
    #[error("{why}")]
    Io {
        /// Why.
        why: String,
    },
    /// It is not UTF-8 from this byte on.
    #[error("not a text: byte {at} is not UTF-8")]
    NotText {
        /// Where, from 0.
        at: u64,
    },
}

impl Text {
    /// The texts that are built into the command.
    pub fn shipped() -> Vec<Self> {
        SHIPPED.iter().map(|(name, _)| Self::Shipped((*name).to_owned())).collect()
    }

    /// The files of a folder, sorted by name: without those in its subfolders, and without names that begin
    /// with a dot. Unreadable files are included: the customer that has to read one reports it.
    ///
    /// # Errors
    /// Those of [`std::fs::read_dir`].
    pub fn files_of(folder: &Path) -> std::io::Result<Vec<Self>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            // `metadata` follows a link to its target.
            let regular = std::fs::metadata(&path).map_or(true, |of| of.is_file());
            // (The name must be UTF-8, since messages carry it.)
            if regular && !hidden && path.to_str().is_some() {
                files.push(Self::File(path));
            }
        }
        files.sort_by_key(ToString::to_string);
        Ok(files)
    }

    /// Reads the text.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub async fn read(&self) -> Result<String, Unreadable> {
        let path = match self {
            Self::Shipped(wanted) => {
                let found = SHIPPED.iter().find(|(name, _)| name == wanted);
                let why = || Unreadable::Io { why: "no text of this name comes with the command".to_owned() };
                return Ok(found.ok_or_else(why)?.1.to_owned());
            }
            Self::File(path) => path.clone(),
        };
        let read = dunlin::blocking(move |_| std::fs::read(path)).await;
        let bytes = match read {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => return Err(Unreadable::Io { why: error.to_string() }),
            Err(exit) => return Err(Unreadable::Io { why: exit.to_string() }),
        };
        String::from_utf8(bytes).map_err(|error| Unreadable::NotText { at: error.utf8_error().valid_up_to() as u64 })
    }
}

/// The name of the text, without the folder.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shipped(name) => f.write_str(name),
            Self::File(path) => path.file_name().unwrap_or(path.as_os_str()).display().fmt(f),
        }
    }
}
