//! The truth as a file: read, and created before the day.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, check_directory};
use crate::settings::Settings;

/// The whole account of one of our days.
pub type Truth = market::truth::Truth<Settings>;

/// Reads a truth file and checks it.
pub fn read_truth(path: &Path) -> Result<Truth, Error> {
    let text = fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    Truth::parse(&text).map_err(|why| Error::Truth { path: path.into(), why })
}

/// Writes the truth file.
pub fn write_truth(truth: &Truth, path: &Path) -> Result<(), Error> {
    TruthFile::create(path)?.write(truth)
}

/// A truth file that is created before the truth is known: a path that cannot be written fails
/// before the day, not after it. Until the truth is written the file is empty, and no reader
/// accepts an empty file.
#[derive(Debug)]
pub struct TruthFile {
    path: PathBuf,
    file: File,
}

impl TruthFile {
    /// Creates the file, or empties it.
    pub fn create(path: &Path) -> Result<Self, Error> {
        check_directory(path)?;
        let file = File::create(path).map_err(|error| Error::io("write", path, error))?;
        Ok(Self { path: path.into(), file })
    }

    /// Writes the truth.
    pub fn write(mut self, truth: &Truth) -> Result<(), Error> {
        let text = truth.to_text().map_err(|why| Error::Truth { path: self.path.clone(), why })?;
        self.file.write_all(text.as_bytes()).map_err(|error| Error::io("write", &self.path, error))
    }
}
