//! Tests of which files a command can read and write.

use std::fs;

use soong_protocol::ToolsConfig;
use soong_text::Environment;

use super::*;

struct SandboxTest {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl SandboxTest {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in [
            "user/.ssh",
            "user/.aws",
            "user/.soong-agent",
            "user/project",
            "user/cache",
            "own",
        ] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        Self {
            _folder: folder,
            root,
        }
    }

    fn reach(&self, project: &str, home: &str, roots: &[&str]) -> SandboxPolicy {
        let roots = roots
            .iter()
            .map(|root| root.replace("ROOT", self.root.to_str().unwrap()))
            .collect();
        let tool_environment = ToolEnvironment {
            tools: ToolsConfig {
                allowed_write_roots: roots,
                ..ToolsConfig::default()
            },
            environment: Environment::of([("HOME", self.root.join("user").to_str().unwrap())]),
            home: Some(self.root.join(home)),
            ..ToolEnvironment::default()
        };
        let project = self.root.join(project);
        fs::create_dir_all(&project).unwrap();
        sandbox_policy(
            &tool_environment,
            &PathPolicy::new(&tool_environment),
            &project,
            [self.root.join("own")],
            1,
        )
        .unwrap()
    }

    /// Returns the paths relative to the root.
    fn names(&self, paths: &[PathBuf]) -> Vec<String> {
        let below = paths
            .iter()
            .filter_map(|path| path.strip_prefix(&self.root).ok());
        below
            .map(|path| path.to_str().unwrap().to_owned())
            .collect()
    }
}

#[test]
fn writable_paths_are_project_roots_and_temporary_directory() {
    for (project, home, roots, want) in [
        (
            "user/project",
            "user/.soong-agent",
            vec![],
            vec!["user/project", "own"],
        ),
        (
            "user/project",
            "user/.soong-agent",
            vec!["~/cache"],
            vec!["user/cache", "user/project", "own"],
        ),
        (
            "user/project",
            "user/.soong-agent",
            vec!["ROOT/user/cache"],
            vec!["user/cache", "user/project", "own"],
        ),
        (
            "user/project",
            "user/.soong-agent",
            vec!["~/nope", "cache", ""],
            vec!["user/project", "own"],
        ),
        // A sensitive folder that is configured as writable.
        (
            "user/project",
            "user/.soong-agent",
            vec!["~/.aws"],
            vec!["user/.aws", "user/project", "own"],
        ),
        // The runtime's home is never accessible, whatever the configuration.
        (
            "user/project",
            "user/.soong-agent",
            vec!["~/.soong-agent"],
            vec!["user/project", "own"],
        ),
        (
            "user",
            "user/.soong-agent",
            vec![],
            vec!["user/cache", "user/project", "own"],
        ),
        (
            "user/project",
            "user/project/.soong-agent",
            vec![],
            vec!["user/project/src", "own"],
        ),
        (
            "user/.soong-agent",
            "user/.soong-agent",
            vec![],
            vec!["own"],
        ),
        // A project inside the runtime's home is still a project.
        (
            "user/.soong-agent/p",
            "user/.soong-agent",
            vec![],
            vec!["user/.soong-agent/p", "own"],
        ),
    ] {
        let world = SandboxTest::new();
        fs::create_dir_all(world.root.join(home)).unwrap();
        if home.starts_with("user/project") {
            fs::create_dir_all(world.root.join("user/project/src")).unwrap();
        }
        let reach = world.reach(project, home, &roots);
        assert_eq!(
            world.names(&reach.writable()),
            want,
            "{project}, {home}, {roots:?}"
        );
    }
}

#[test]
fn home_sensitive_paths_and_devices_are_not_readable() {
    let world = SandboxTest::new();
    for name in [
        ".netrc",
        ".npmrc",
        ".cargo/credentials.toml",
        ".cargo/config.toml",
        ".bash_history",
        ".bashrc",
    ] {
        let path = world.root.join("user").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    let reach = world.reach("user/project", "user/.soong-agent", &[]);
    let want = [
        "own",
        "user/.bashrc",
        "user/.cargo/config.toml",
        "user/cache",
        "user/project",
    ];
    assert_eq!(world.names(&reach.readable()), want);
    assert!(
        reach.readable().contains(&PathBuf::from("/usr")),
        "{:?}",
        reach.readable()
    );
    assert!(
        !reach.readable().iter().any(|path| path.starts_with("/dev")),
        "{:?}",
        reach.readable()
    );
    assert!(reach.devices.contains(&PathBuf::from("/dev/null")));
}
