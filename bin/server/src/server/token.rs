//! Tokens: the user of each token, and the token of the home, which is stored in a file (SRV-1).
//!
//! The file is read for every request, so replacing it revokes the old token. Open streams notice
//! this within a second. Only digests are kept; no log and no message contains a token.

use std::{
    collections::HashMap,
    fs::{OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sha2::{Digest, Sha256};
use soong::{Environment, protocol::Config};
use tokio::sync::watch;

use crate::{
    http::{Caller, LOCAL, TokenWatch},
    text_file::read_text,
};

/// Name of the token file in the home.
const FILE: &str = "server.token";
/// Name of the file with the same token as a header, for `curl -H @FILE`: process arguments are
/// public.
const HEADER_FILE: &str = "server.header";
/// Length of a generated token, in random bytes.
const TOKEN_BYTES: usize = 32;
/// Minimum length of a token, in characters. A shorter one could be guessed.
const MIN_CHARS: usize = 16;
/// Maximum size of the token file, in bytes.
const MAX_BYTES: u64 = 4_096;
/// Interval of checking the token file for open streams.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

type Fingerprint = [u8; 32];

/// A known token, from a variable or from the file.
struct KnownToken {
    uid: Arc<str>,
    /// Whether the token is still valid.
    valid: watch::Sender<bool>,
}

impl KnownToken {
    fn new(uid: &str) -> Self {
        Self {
            uid: uid.into(),
            valid: watch::Sender::new(true),
        }
    }
}

/// All known tokens and their users.
#[derive(Clone)]
pub struct Tokens {
    path: PathBuf,
    configured: Arc<HashMap<Fingerprint, KnownToken>>,
    /// Token of the file, as it was last read.
    home_token: Arc<Mutex<Option<(Fingerprint, KnownToken)>>>,
}

/// Returns the token of a home, as commands send it; `None` if the file is missing or holds no
/// valid token.
pub fn read_home_token(home: &Path) -> io::Result<Option<String>> {
    let text = match read_text(&home.join(FILE), MAX_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let token = text.trim();
    let counts = token.len() >= MIN_CHARS && token.bytes().all(|byte| byte.is_ascii_graphic());
    Ok(counts.then(|| token.to_owned()))
}

/// Returns the token of a home, and creates it if there is none. If other users could read the
/// file, corrects its mode and returns a note about that.
///
/// # Errors
/// The file cannot be read or written, or it holds no valid token.
pub fn prepare_home_token(home: &Path) -> io::Result<(String, Option<String>)> {
    let path = home.join(FILE);
    let mut note = None;
    match path.metadata() {
        Ok(metadata) => {
            if metadata.permissions().mode() & 0o077 != 0 {
                std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
                note = Some(format!(
                    "{FILE} was readable by other users (corrected): if the token may have been read, delete the file and restart"
                ));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut bytes = [0; TOKEN_BYTES];
            getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
            let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            write_secret(home, FILE, &format!("{token}\n"))?;
        }
        Err(error) => return Err(error),
    }
    let what = format!(
        "{} contains no token of at least {MIN_CHARS} characters: delete the file and restart",
        path.display()
    );
    let token =
        read_home_token(home)?.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, what))?;
    write_secret(
        home,
        HEADER_FILE,
        &format!("Authorization: Bearer {token}\n"),
    )?;
    Ok((token, note))
}

/// Writes a file that only its owner can read. The file is renamed into place with its complete
/// content and its mode.
fn write_secret(home: &Path, name: &str, text: &str) -> io::Result<()> {
    let draft = home.join(format!(".{name}-{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())?;
    std::fs::rename(&draft, home.join(name))
}

/// A user of the configuration whose token cannot be used.
pub struct UnusableToken {
    /// The user.
    pub uid: String,
    /// The reason.
    pub why: String,
}

impl Tokens {
    /// Reads the tokens that the configuration names. The home's token is read for each request.
    pub fn read(
        home: &Path,
        config: &Config,
        environment: &Environment,
    ) -> Result<Self, UnusableToken> {
        let mut others = HashMap::new();
        for (uid, variable) in &config.server.tokens {
            let fail = |why: String| UnusableToken {
                uid: uid.clone(),
                why,
            };
            let token = environment.get(variable).map(str::trim).unwrap_or_default();
            if token.is_empty() {
                return Err(fail(format!(
                    "the environment variable {variable} is not set"
                )));
            }
            if token.len() < MIN_CHARS || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(fail(format!(
                    "{variable} must contain at least {MIN_CHARS} characters without spaces"
                )));
            }
            if others
                .insert(fingerprint(token), KnownToken::new(uid))
                .is_some()
            {
                return Err(fail(format!(
                    "{variable} contains the token of another user"
                )));
            }
        }
        let path = home.join(FILE);
        Ok(Self {
            path,
            configured: Arc::new(others),
            home_token: Arc::default(),
        })
    }

    /// Returns the user of a token, and a handle that reports when the token is revoked.
    pub fn find(&self, token: &str) -> Option<(Caller, TokenWatch)> {
        self.reload();
        // Digests are compared, so that the time of the comparison reveals nothing about the token.
        let offered = fingerprint(token);
        let own = self.own();
        let known = own
            .as_ref()
            .filter(|(stored, _)| *stored == offered)
            .map(|(_, known)| known);
        let known = known.or_else(|| self.configured.get(&offered))?;
        Some((
            Caller::User(Arc::clone(&known.uid)),
            TokenWatch(Some(known.valid.subscribe())),
        ))
    }

    /// Checks the token file regularly, so that streams with a revoked token end.
    pub async fn watch(self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let tokens = self.clone();
            let _ = tokio::task::spawn_blocking(move || tokens.reload()).await;
        }
    }

    fn own(&self) -> MutexGuard<'_, Option<(Fingerprint, KnownToken)>> {
        self.home_token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file. If it holds another token, or none, the previous one is revoked.
    fn reload(&self) {
        let home = self.path.parent().unwrap_or(Path::new(""));
        // A file that cannot be read grants no access.
        let now = read_home_token(home)
            .ok()
            .flatten()
            .map(|token| fingerprint(&token));
        let mut own = self.own();
        if own.as_ref().map(|(stored, _)| *stored) == now {
            return;
        }
        if let Some((_, before)) = own.take() {
            before.valid.send_replace(false);
        }
        *own = now.map(|now| (now, KnownToken::new(LOCAL)));
    }
}

fn fingerprint(token: &str) -> Fingerprint {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_private_and_revoked_by_changing_its_file() {
        let home = tempfile::tempdir().unwrap();
        let (token, note) = prepare_home_token(home.path()).unwrap();
        assert_eq!((token.len(), note), (64, None));
        let path = home.path().join(FILE);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            prepare_home_token(home.path()).unwrap().0,
            token,
            "it stays"
        );
        let header = home.path().join(HEADER_FILE);
        assert_eq!(
            std::fs::read_to_string(&header).unwrap(),
            format!("Authorization: Bearer {token}\n")
        );
        assert_eq!(
            header.metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2);

        let tokens = Tokens::read(home.path(), &Config::default(), &Environment::default())
            .unwrap_or_else(|_| panic!());
        let (caller, token_watch) = tokens.find(&token).unwrap();
        assert_eq!(caller, Caller::User(LOCAL.into()));
        for wrong in ["", "x", &token[..63], &format!("{token} ")] {
            assert!(tokens.find(wrong).is_none(), "{wrong:?}");
        }
        let holds = token_watch.0.unwrap();
        assert!(*holds.borrow());
        std::fs::write(&path, "another-token-of-some-length\n").unwrap();
        assert!(tokens.find(&token).is_none() && !*holds.borrow());
        assert!(tokens.find("another-token-of-some-length").is_some());
        for no_token in ["", "\n", "short", "two words that are long enough"] {
            std::fs::write(&path, no_token).unwrap();
            assert!(tokens.find(no_token.trim()).is_none(), "{no_token:?}");
            assert!(prepare_home_token(home.path()).is_err(), "{no_token:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(tokens.find("another-token-of-some-length").is_none());
    }

    #[test]
    fn world_readable_token_file_is_made_private() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(FILE);
        std::fs::write(&path, "some-token-of-some-length").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let (token, note) = prepare_home_token(home.path()).unwrap();
        assert!(token == "some-token-of-some-length" && note.is_some());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn configured_users_have_distinct_tokens() {
        let home = tempfile::tempdir().unwrap();
        let config = Config::parse("c", "[server.tokens]\nbob = \"BOB\"\neve = \"EVE\"\n").unwrap();
        let read = |bob: &str, eve: &str| {
            let environment = Environment::of([("BOB", bob), ("EVE", eve)]);
            Tokens::read(home.path(), &config, &environment).map_err(|missing| missing.why)
        };
        let bob = "bob-bob-bob-bob-bob";
        let eve = "eve-eve-eve-eve-eve";
        let tokens = read(bob, eve).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(tokens.find(eve).unwrap().0, Caller::User("eve".into()));
        for (bob, eve, part) in [
            (bob, "", "EVE is not set"),
            (bob, "short", "at least 16"),
            (bob, bob, "another user"),
        ] {
            assert!(read(bob, eve).err().unwrap().contains(part), "{eve:?}");
        }
    }
}
