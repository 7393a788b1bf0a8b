//! Tests of path resolution and formatting.

use std::fs;

use super::*;
use crate::{path_policy::PathPolicy, testing::TestProject};

#[cfg(unix)]
#[test]
fn unusual_file_name_round_trips_on_one_line() {
    use std::os::unix::ffi::OsStrExt;
    for bytes in [
        b"a\nb".as_slice(),
        b"tick`tick",
        b"back\\slash",
        b"\\n",
        b"\xff\xfe raw",
        "dir\u{202e}txt".as_bytes(),
        "schön 好".as_bytes(),
        b"\x1b[2J",
    ] {
        let name = std::ffi::OsStr::from_bytes(bytes);
        let project = TestProject::new(&[]);
        fs::write(project.path().join(name), "x").unwrap();
        let text = escape_path(Path::new(name));
        assert!(
            !text.contains(['\n', '`', '\u{1b}', '\u{202e}']),
            "{text:?}"
        );
        let resolved = PathPolicy::default()
            .resolve_existing(&project.path(), &text)
            .unwrap();
        assert_eq!(resolved.relative.as_os_str(), name, "{text:?}");
    }
}

#[test]
fn page_ends_at_line_boundary_within_limit() {
    let mut page = OutputPage::new(1024);
    let lines = (0..100).filter(|_| page.push_line("0123456789")).count();
    assert!(lines > 0 && lines < 100 && page.is_full);
    let text = page.finish(&"é".repeat(2000));
    assert!(text.len() <= 1024 && text.ends_with("…]"), "{}", text.len());
    assert_eq!(text.lines().count(), lines + 1);
}
