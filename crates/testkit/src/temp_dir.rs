//! Temporary folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A temporary folder that is removed when it is dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates a folder with a name that no other test uses.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(unique_name());
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// The path of a file in the folder.
    pub fn path(&self, file: &str) -> String {
        let path = self.0.join(file).into_os_string();
        path.into_string().unwrap()
    }

    /// Writes a file and returns its path.
    pub fn write(&self, file: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(file);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A name that no other test on this machine uses at the same time.
pub fn unique_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    format!("rl-test-{}-{number}", std::process::id())
}
