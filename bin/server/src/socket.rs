//! The control socket of an owner: bound, guarded and removed.

use std::{
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use axum::serve::Listener;
use soong::is_tool_process;
use soong_client::socket::{NAME, ShortPath};
use tokio::net::{UnixListener, UnixStream};

/// Binds the home's control socket, and replaces one that a previous owner left. Only the user that
/// owns it may connect (mode 0600).
///
/// The caller owns the home, so no other process binds there at the same time.
pub fn bind(home: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let short_path = ShortPath::new(home)?;
    // Created in a private folder, so that the socket never exists with a wider mode at its final
    // path.
    let private = tempfile::Builder::new()
        .prefix(".control-")
        .rand_bytes(4)
        .tempdir_in(short_path.path())?;
    let path = private.path().join("s");
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
    let id = file_id(&path)?;
    std::fs::rename(&path, short_path.path().join(NAME))?;
    Ok((
        listener,
        SocketFile {
            home: home.to_owned(),
            id,
        },
    ))
}

/// The socket file of a listener.
#[derive(Debug)]
pub struct SocketFile {
    home: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl SocketFile {
    /// Removes the file, unless it has been replaced by another socket.
    pub fn remove(&self) {
        let path = self.home.join(NAME);
        if file_id(&path).is_ok_and(|id| id == self.id) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Listener that rejects commands started by tools: such a command must not approve its own request
/// (PERM-1).
pub struct GuardedListener(pub UnixListener);

impl Listener for GuardedListener {
    type Io = UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.0).await;
            let pid = stream
                .peer_cred()
                .ok()
                .and_then(|peer| peer.pid())
                .and_then(|pid| u32::try_from(pid).ok());
            match pid {
                Some(pid) if is_tool_process(pid) => {
                    tracing::warn!(
                        pid,
                        "rejected a connection to the control socket from a command that a tool started"
                    );
                }
                // Systems that report no process id have no confinement either.
                _ => return (stream, address),
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use soong_client::socket::connect;

    use super::*;

    fn check_that_two_ends_meet(home: &Path) {
        let threads = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        threads.block_on(async {
            assert_eq!(
                connect(home).await.unwrap_err().kind(),
                io::ErrorKind::NotFound
            );
            let (first, old) = bind(home).unwrap();
            connect(home).await.unwrap();
            drop(first);
            // The socket of a dead owner refuses connections, and is replaced by the next owner.
            assert_eq!(
                connect(home).await.unwrap_err().kind(),
                io::ErrorKind::ConnectionRefused
            );
            let (second, file) = bind(home).unwrap();
            // The old file has been replaced: the new one stays.
            old.remove();
            connect(home).await.unwrap();
            second.accept().await.unwrap();
            let mode = std::fs::metadata(home.join(NAME))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
            assert_eq!(
                std::fs::read_dir(home).unwrap().count(),
                1,
                "nothing else is left in the home"
            );
            file.remove();
            assert_eq!(
                connect(home).await.unwrap_err().kind(),
                io::ErrorKind::NotFound
            );
        });
    }

    #[test]
    fn socket_is_private_and_stale_socket_is_replaced() {
        check_that_two_ends_meet(tempfile::tempdir().unwrap().path());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn home_path_may_be_longer_than_a_socket_path() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120)).join("e".repeat(60));
        std::fs::create_dir_all(&deep).unwrap();
        check_that_two_ends_meet(&deep);
    }
}
