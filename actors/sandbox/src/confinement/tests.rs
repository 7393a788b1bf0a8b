//! Tests of the paths granted around hidden ones.

use super::*;

/// Creates a folder with these files; names that end in a slash are folders.
fn folder(names: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in names {
        let path = root.join(name);
        fs::create_dir_all(if name.ends_with('/') {
            &path
        } else {
            path.parent().unwrap()
        })
        .unwrap();
        if !name.ends_with('/') {
            fs::write(&path, "x").unwrap();
        }
    }
    (folder, root)
}

#[test]
fn grants_cover_everything_except_hidden_paths() {
    let (_folder, root) = folder(&[
        "a/x",
        "a/y/z",
        "b/",
        "home/user/.ssh/id",
        "home/user/project/x",
        "home/other/x",
        "f",
    ]);
    for (from, hidden, want) in [
        ("", vec![], vec![""]),
        ("", vec!["nope"], vec!["a", "b", "f", "home"]),
        (
            "",
            vec!["home/user/.ssh"],
            vec!["a", "b", "f", "home/other", "home/user/project"],
        ),
        ("", vec!["a", "home"], vec!["b", "f"]),
        (
            "",
            vec!["a/y", "f", "home/user"],
            vec!["a/x", "b", "home/other"],
        ),
        ("", vec!["a/y", "a/y/z"], vec!["a/x", "b", "f", "home"]),
        ("a", vec!["home/user/.ssh"], vec!["a"]),
        (
            "home/user",
            vec!["home/user/.ssh"],
            vec!["home/user/project"],
        ),
        ("home/user/.ssh", vec!["home/user/.ssh"], vec![]),
        ("home/user/.ssh", vec!["home/user"], vec![]),
        // A name with the same prefix is another name.
        ("home/us", vec!["home/user"], vec!["home/us"]),
        ("", vec![""], vec![]),
    ] {
        let hidden: Vec<PathBuf> = hidden.iter().map(|path| joined(&root, path)).collect();
        let want: Vec<PathBuf> = want.iter().map(|path| joined(&root, path)).collect();
        assert_eq!(
            paths_excluding(&joined(&root, from), &hidden),
            want,
            "{from:?} around {hidden:?}"
        );
    }
}

/// Joins paths without the slash that an empty path would add.
fn joined(root: &Path, path: &str) -> PathBuf {
    if path.is_empty() {
        root.to_owned()
    } else {
        root.join(path)
    }
}

#[test]
fn symlink_to_hidden_path_is_not_granted() {
    let (_folder, root) = folder(&["secret/x", "open/x"]);
    std::os::unix::fs::symlink(root.join("secret"), root.join("link")).unwrap();
    assert_eq!(
        paths_excluding(&root, &[root.join("secret")]),
        [root.join("open")]
    );
}
