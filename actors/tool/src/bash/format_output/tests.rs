//! Tests of how output is formatted.

use super::*;

#[test]
fn terminal_control_sequences_are_removed_or_escaped() {
    for (bytes, want) in [
        (b"plain\ttext\n".as_slice(), "plain\ttext\n"),
        ("schön 好\n".as_bytes(), "schön 好\n"),
        (b"", ""),
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b[1;38;5;200mred\x1b[m!", "red!"),
        (b"\x1b[2J\x1b[H\x1b[?25lx", "x"),
        (b"\x1b]0;title\x07x", "x"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bP1;2qabc\x1b\\x", "x"),
        (b"\x1b(Bx\x1bMy\x1b=z", "xyz"),
        (b"\x1b", "\\x1b"),
        (b"a\x1b\nb", "a\\x1b\nb"),
        (b"\x1b[31", "\\x1b[31"),
        (b"\x1b]never ends\n", "\\x1b]never ends\n"),
        (b"a\0b\x07c\x08d\x7fe", "a\\x00b\\x07c\\x08d\\x7fe"),
        ("\u{9b}31m".as_bytes(), "\\u{9b}31m"),
        (b"line\r\nnext\r\n", "line\nnext\n"),
        (b"10%\r20%\r\n", "10%\\r20%\n"),
        (b"a\xff\xfeb", "a\u{fffd}\u{fffd}b"),
        (b"\xe5\xa5", "\u{fffd}"),
    ] {
        assert_eq!(
            sanitize(bytes),
            want,
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[test]
fn unterminated_escape_sequence_hides_no_text() {
    let text = format!("\u{1b}]{}", "secret ".repeat(10_000));
    assert_eq!(
        sanitize(text.as_bytes()),
        format!("\\x1b]{}", "secret ".repeat(10_000))
    );
}

fn printed(bytes: &[u8], end: usize) -> HeadTailBuffer {
    let mut ends = HeadTailBuffer::new(end, end);
    bytes.chunks(777).for_each(|chunk| ends.push(chunk));
    ends
}

#[test]
fn omitted_bytes_are_counted_exactly() {
    for (bytes, stored_bytes, shown_bytes, want) in [
        (b"short".to_vec(), 10, 10, "short".to_owned()),
        (vec![b'a'; 20], 10, 10, "a".repeat(20)),
        (
            vec![b'a'; 21],
            10,
            10,
            format!("{0}\n[left out: 1 of 21 bytes]\n{0}", "a".repeat(10)),
        ),
        (
            vec![b'a'; 9999],
            10,
            4,
            format!("{0}\n[left out: 9991 of 9999 bytes]\n{0}", "a".repeat(4)),
        ),
        // Each byte is shown as four bytes.
        (
            vec![0; 1000],
            100,
            40,
            format!(
                "{0}\n[left out: 980 of 1000 bytes]\n{0}",
                "\\x00".repeat(10)
            ),
        ),
        // No character of 3 bytes is split.
        (
            "好".repeat(100).into_bytes(),
            10,
            10,
            "好好好\n[left out: 282 of 300 bytes]\n好好好".to_owned(),
        ),
    ] {
        let name = format!(
            "{} bytes, {stored_bytes} kept, {shown_bytes} shown",
            bytes.len()
        );
        assert_eq!(
            format_output(&printed(&bytes, stored_bytes), shown_bytes),
            want,
            "{name}"
        );
    }
}
