//! The control socket of a home: its name, and a path to it that fits the limit of the system.

use std::{
    io,
    path::{Path, PathBuf},
};

use tokio::net::UnixStream;

/// Name of the socket in the home.
pub const NAME: &str = "control.sock";
/// Maximum length of a socket path that every system accepts, in bytes.
const MAX_PATH_BYTES: usize = 100;
/// Longest path below a home to which a socket is bound: the temporary one of `soong-server`, with
/// its slash.
const LONGEST_NAME: &str = "/.control-xxxx/s";

/// Connects to the owner of a home.
///
/// # Errors
/// `NotFound` or `ConnectionRefused` if no process listens there.
pub async fn connect(home: &Path) -> io::Result<UnixStream> {
    let short_path = ShortPath::new(home)?;
    UnixStream::connect(short_path.socket()).await
}

/// Returns whether a process listens on the control socket of a home.
pub fn is_served(home: &Path) -> bool {
    ShortPath::new(home)
        .and_then(|short_path| std::os::unix::net::UnixStream::connect(short_path.socket()))
        .is_ok()
}

/// A path of a home that is short enough for a socket in it. Valid while this value exists.
#[derive(Debug)]
pub struct ShortPath {
    path: PathBuf,
    /// Open folder that the short path refers to.
    #[cfg(target_os = "linux")]
    _folder: Option<std::fs::File>,
}

impl ShortPath {
    /// Finds the path.
    ///
    /// # Errors
    /// The folder cannot be opened, or the system has no short path for it.
    #[cfg(target_os = "linux")]
    pub fn new(home: &Path) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        if home.as_os_str().len() + LONGEST_NAME.len() <= MAX_PATH_BYTES {
            return Ok(Self {
                path: home.to_owned(),
                _folder: None,
            });
        }
        let folder = std::fs::File::open(home)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        Ok(Self {
            path,
            _folder: Some(folder),
        })
    }

    /// Finds the path.
    ///
    /// # Errors
    /// The path of the home is too long.
    #[cfg(not(target_os = "linux"))]
    pub fn new(home: &Path) -> io::Result<Self> {
        if home.as_os_str().len() + LONGEST_NAME.len() <= MAX_PATH_BYTES {
            return Ok(Self {
                path: home.to_owned(),
            });
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path of the home is too long for the control socket",
        ))
    }

    /// Returns the path of the home.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the control socket.
    pub fn socket(&self) -> PathBuf {
        self.path.join(NAME)
    }
}
