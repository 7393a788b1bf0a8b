//! The process environment: read once, in this module (RT-1).

use std::{collections::BTreeMap, path::PathBuf};

/// Operating system and processor architecture.
pub const PLATFORM: [&str; 2] = [std::env::consts::OS, std::env::consts::ARCH];

/// Environment variables, including the user's home directory, as of the time when the runtime was
/// built.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("names", &self.variables.keys().collect::<Vec<_>>())
            .finish()
    }
}

impl Environment {
    /// Reads the environment of the process. Variables that are not valid UTF-8 are omitted.
    pub fn from_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
        }
    }

    /// Creates an environment with these variables only.
    pub fn of<N: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        Self {
            variables: variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        }
    }

    /// Returns a copy with a variable added or replaced.
    #[must_use]
    pub fn with(&self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let mut variables = self.variables.clone();
        variables.insert(name.into(), value.into());
        Self { variables }
    }

    /// Returns the value of a variable. An empty value counts as unset.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns the variables in `names` that are set (TOOL-5).
    pub fn select(&self, names: &[String]) -> BTreeMap<String, String> {
        let named = |name: &String| Some((name.clone(), self.get(name)?.to_owned()));
        names.iter().filter_map(named).collect()
    }

    /// Returns all variables.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Resolves the path of a setting: `~/` means the user's home directory. `None` if that
    /// directory is unknown.
    pub fn expand_home(&self, path: &str) -> Option<PathBuf> {
        match path.strip_prefix("~/") {
            Some(rest) => self.user_home().map(|home| home.join(rest)),
            None => Some(PathBuf::from(path)),
        }
    }

    /// Returns the home of the runtime (RT-2): `SOONG_AGENT_HOME`, else `~/.soong-agent`.
    pub fn home(&self) -> Option<PathBuf> {
        let own = self.get("SOONG_AGENT_HOME").map(PathBuf::from);
        own.or_else(|| Some(self.user_home()?.join(".soong-agent")))
    }

    /// Returns the user's home folder: `HOME`.
    pub fn user_home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_returns_only_nonempty_variables() {
        let environment = Environment::of([("PATH", "/bin"), ("HOME", ""), ("KEY", "secret")]);
        let names = ["PATH", "HOME", "NOPE"].map(str::to_owned);
        assert_eq!(
            environment.select(&names),
            [("PATH".to_owned(), "/bin".to_owned())].into()
        );
    }
}
