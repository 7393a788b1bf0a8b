//! Tests of path resolution: inside, outside, inside the runtime's home, and sensitive paths.

use std::fs;

use soong_protocol::ToolsConfig;
use soong_text::Environment;

use super::*;
use crate::{safe_fs::open_file, testing::TestProject};

#[test]
fn path_outside_project_is_rejected() {
    let project = TestProject::new(&[("src/a.rs", "a")]);
    let root = project.path();
    let roots = PathPolicy::default();
    let inside = root.join("src/a.rs").to_str().unwrap().to_owned();
    for (path, want) in [
        ("src/a.rs", Ok("src/a.rs")),
        ("./src/../src/a.rs", Ok("src/a.rs")),
        (".", Ok(".")),
        ("", Ok(".")),
        (&inside, Ok("src/a.rs")),
        ("..", Err(ErrorCode::OutsideAllowedRoots)),
        ("src/../../x", Err(ErrorCode::OutsideAllowedRoots)),
        ("../nope/nope", Err(ErrorCode::OutsideAllowedRoots)),
        ("/", Err(ErrorCode::OutsideAllowedRoots)),
        ("/nope/nope", Err(ErrorCode::OutsideAllowedRoots)),
        ("nope", Err(ErrorCode::FileNotFound)),
        ("src/a.rs/b", Err(ErrorCode::FileNotFound)),
        ("a\0b", Err(ErrorCode::ValidationError)),
        ("\\x00", Err(ErrorCode::FileNotFound)),
        ("\\", Err(ErrorCode::FileNotFound)),
        ("\\..\\é", Err(ErrorCode::FileNotFound)),
    ] {
        let got = roots
            .resolve_existing(&root, path)
            .map(|resolved| resolved.display_name())
            .map_err(|error| error.code);
        assert_eq!(got.as_deref().map_err(|code| *code), want, "{path:?}");
    }
    let missing = roots.resolve_existing(&root, "nope").unwrap_err();
    assert!(
        missing.message.contains("`nope`") && !missing.message.contains(root.to_str().unwrap()),
        "{missing}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn kernel_files_are_rejected_even_with_root_as_project() {
    let root = Path::new("/");
    let roots = PathPolicy::default();
    let link = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/proc/self/maps", link.path().join("maps")).unwrap();
    let linked = link.path().join("maps").display().to_string();
    for path in [
        "proc/self/maps",
        "/proc/self/environ",
        "proc",
        "sys/kernel",
        &linked,
    ] {
        let refused = roots.resolve_existing(root, path).unwrap_err();
        assert_eq!(
            refused.code,
            ErrorCode::OutsideAllowedRoots,
            "{path}: {refused}"
        );
    }
    for path in ["proc/new", "proc/self/new"] {
        assert_eq!(
            roots.resolve_new(root, path).unwrap_err().code,
            ErrorCode::OutsideAllowedRoots,
            "{path}"
        );
    }
    // A path that was resolved before something was mounted over it.
    let resolved = ResolvedPath {
        root: "/".into(),
        relative: "proc/self/maps".into(),
        path: "/proc/self/maps".into(),
        is_project: true,
    };
    let refused = open_file(&resolved).err().map(|error| error.code);
    assert!(refused.is_some(), "not opened: {refused:?}");
    let mut seen = Vec::new();
    let start = roots.resolve_existing(root, ".").unwrap();
    crate::walk::walk(&roots, &start, false, &Default::default(), |entry, _| {
        seen.push(entry.path().to_owned());
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert!(
        !seen.is_empty() && !seen.contains(&PathBuf::from("/proc")),
        "{seen:?}"
    );
}

#[cfg(unix)]
#[test]
fn symlink_out_of_project_is_rejected_and_inner_one_followed() {
    let project = TestProject::new(&[("real/a", "a")]);
    let root = project.path();
    let roots = PathPolicy::default();
    std::os::unix::fs::symlink("/", root.join("out")).unwrap();
    std::os::unix::fs::symlink("real", root.join("in")).unwrap();
    std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
    assert_eq!(
        roots.resolve_existing(&root, "out/etc").unwrap_err().code,
        ErrorCode::OutsideAllowedRoots
    );
    assert_eq!(
        roots
            .resolve_existing(&root, "in/a")
            .unwrap()
            .display_name(),
        "real/a"
    );
    assert!(roots.resolve_existing(&root, "loop").is_err());
}

#[cfg(unix)]
#[test]
fn pipe_is_rejected_without_being_opened() {
    let project = TestProject::new(&[]);
    let made = std::process::Command::new("mkfifo")
        .arg(project.path().join("pipe"))
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return;
    }
    let resolved = PathPolicy::default()
        .resolve_existing(&project.path(), "pipe")
        .unwrap();
    assert_eq!(
        open_file(&resolved).unwrap_err().code,
        ErrorCode::UnsupportedMedia
    );
}

/// A project next to a user's home that contains the runtime's home, and an allowed root.
fn tool_environment(user: &Path) -> ToolEnvironment {
    ToolEnvironment {
        tools: ToolsConfig {
            allowed_write_roots: vec!["~/shared".to_owned()],
            ..ToolsConfig::default()
        },
        environment: Environment::of([("HOME", user.to_str().unwrap())]),
        home: Some(user.join(".soong-agent")),
        ..ToolEnvironment::default()
    }
}

#[test]
fn allowed_root_is_accessible_and_runtime_home_is_not() {
    let user = TestProject::new(&[
        ("shared/a.txt", "a"),
        (".soong-agent/server.token", "t"),
        ("shared/.soong-agent/x", "x"),
        ("work/b.txt", "b"),
    ]);
    let base = user.path();
    let project = user.path().join("work");
    let roots = PathPolicy::new(&tool_environment(&base));
    let at = |path: &str| base.join(path).to_str().unwrap().to_owned();
    assert_eq!(
        roots
            .resolve_existing(&project, &at("shared/a.txt"))
            .unwrap()
            .display_name(),
        at("shared/a.txt")
    );
    assert_eq!(
        roots
            .resolve_new(&project, &at("shared/new/b.txt"))
            .unwrap()
            .display_name(),
        at("shared/new/b.txt")
    );
    assert!(
        roots
            .resolve_existing(&project, &at("shared/.soong-agent/x"))
            .is_ok(),
        "that is no home of ours"
    );
    for path in [
        ".soong-agent/server.token",
        ".soong-agent",
        "secret.txt",
        "shared/../secret.txt",
    ] {
        let refused = roots.resolve_new(&project, &at(path)).unwrap_err();
        assert_eq!(
            refused.code,
            ErrorCode::OutsideAllowedRoots,
            "{path}: {refused}"
        );
    }
    // Also if the project contains the runtime's home.
    let refused = roots
        .resolve_new(&base, ".soong-agent/config.toml")
        .unwrap_err();
    assert!(
        refused.code == ErrorCode::OutsideAllowedRoots && refused.message.contains("soong itself"),
        "{refused}"
    );
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(base.join(".soong-agent"), project.join("link")).unwrap();
        assert_eq!(
            roots
                .resolve_existing(&project, "link/server.token")
                .unwrap_err()
                .code,
            ErrorCode::OutsideAllowedRoots
        );
    }
}

#[test]
fn new_path_is_resolved_up_to_existing_parent() {
    let project = TestProject::new(&[("src/a.rs", "a")]);
    let root = project.path();
    let roots = PathPolicy::default();
    let new = |path: &str| {
        roots
            .resolve_new(&root, path)
            .map(|resolved| resolved.display_name())
            .map_err(|error| error.code)
    };
    for (path, want) in [
        ("b.rs", Ok("b.rs")),
        ("src/b.rs", Ok("src/b.rs")),
        ("src/../b.rs", Ok("b.rs")),
        ("new/deep/b.rs", Ok("new/deep/b.rs")),
        ("./new//b.rs", Ok("new/b.rs")),
        ("new/../b.rs", Err(ErrorCode::ValidationError)),
        ("src/a.rs/b.rs", Err(ErrorCode::ValidationError)),
        ("../b.rs", Err(ErrorCode::OutsideAllowedRoots)),
        ("/nope/b.rs", Err(ErrorCode::OutsideAllowedRoots)),
        ("src/../../b.rs", Err(ErrorCode::OutsideAllowedRoots)),
        ("new/..", Err(ErrorCode::ValidationError)),
    ] {
        assert_eq!(new(path).as_deref().map_err(|code| *code), want, "{path:?}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/nowhere/at/all", root.join("dangling")).unwrap();
        std::os::unix::fs::symlink("/tmp", root.join("out")).unwrap();
        assert_eq!(new("dangling"), Err(ErrorCode::ValidationError));
        assert_eq!(new("dangling/x"), Err(ErrorCode::ValidationError));
        assert_eq!(new("out/x"), Err(ErrorCode::OutsideAllowedRoots));
    }
}

#[test]
fn sensitive_paths_require_permission() {
    let user = TestProject::new(&[]);
    let base = user.path();
    let roots = PathPolicy::new(&tool_environment(&base));
    for (path, reading, writing) in [
        ("src/a.rs", false, false),
        (".env", true, true),
        ("deep/er/.ENV", true, true),
        (".env.local", true, true),
        (".envy", false, false),
        ("keys/server.pem", true, true),
        ("id_rsa.pub", true, true),
        (".ssh/config", true, true),
        (".ssh", false, true),
        (".aws/deep/credentials", true, true),
        (".git/config", false, true),
        ("sub/.git/hooks/pre-commit", false, true),
        (".GIT/hooks/x", false, true),
        (".soong-agent-notes", false, false),
        (".gitignore", false, true),
        (".vscode/settings.json", false, true),
        (".bashrc", false, true),
        (".local/bin/x", false, true),
    ] {
        user.write(&format!("{path}.d/x"), b"");
        let path = Path::new(path);
        let resolved = ResolvedPath {
            path: base.join(path),
            root: base.clone(),
            relative: path.to_owned(),
            is_project: true,
        };
        assert_eq!(
            roots.read_access(&resolved).is_some(),
            reading,
            "{path:?} read"
        );
        assert_eq!(
            roots.write_access(&resolved).is_sensitive,
            writing,
            "{path:?} written"
        );
    }
}

#[test]
fn sensitive_pattern_may_be_the_name_of_a_file() {
    let patterns = [
        "key[1].txt",
        "notes?",
        "src/{{name}}/x",
        "app/[id]/*.pem",
        "a\\",
    ]
    .map(str::to_owned);
    let SensitiveFiles { names, paths } = SensitiveFiles::new(&patterns);
    for name in ["key[1].txt", "key1.txt", "notes1"] {
        assert!(names.is_match(name), "{name}");
    }
    assert!(
        paths.is_match("src/{{name}}/x")
            && paths.is_match("app/[id]/k.pem")
            && !names.is_match("key2.txt")
    );
}

#[cfg(unix)]
#[test]
fn hard_linked_file_requires_permission() {
    let outside = TestProject::new(&[("secret", "s")]);
    let project = TestProject::new(&[("own", "o")]);
    if fs::hard_link(outside.path().join("secret"), project.path().join("twin")).is_err() {
        return; // the folders are on different file systems
    }
    let roots = PathPolicy::default();
    let reading =
        |name: &str| roots.read_access(&roots.resolve_existing(&project.path(), name).unwrap());
    assert!(reading("own").is_none());
    assert!(reading("twin").is_some_and(|access| access.is_sensitive && access.note.is_some()));
}
