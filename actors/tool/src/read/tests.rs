//! Tests of `read` on real files.

use super::*;
use crate::testing::TestProject;

async fn read(project: &TestProject, arguments: Value) -> Result<String, ErrorInfo> {
    project
        .call(&ReadTool::new(Default::default()), arguments)
        .await
}

#[tokio::test]
async fn page_numbers_lines_and_gives_next_start_line() {
    let text: String = (1..=12).map(|n| format!("line {n}\n")).collect();
    let project = TestProject::new(&[
        ("a.txt", &text),
        ("open.txt", "one\r\ntwo"),
        ("empty", ""),
        ("gap", "\n\nx\n"),
    ]);
    for (arguments, want) in [
        (
            json!({"path": "a.txt", "start_line": 11}),
            "   11\tline 11\n   12\tline 12\n[lines 11–12 of 12, 87 bytes]",
        ),
        (
            json!({"path": "a.txt", "max_lines": 1}),
            "    1\tline 1\n[lines 1–1 of 12, 87 bytes; continue with start_line=2]",
        ),
        (
            json!({"path": "open.txt"}),
            "    1\tone\n    2\ttwo\n[lines 1–2 of 2, 8 bytes; lines end in CR LF]",
        ),
        (json!({"path": "empty"}), "[the file is empty: 0 bytes]"),
        (
            json!({"path": "gap"}),
            "    1\t\n    2\t\n    3\tx\n[lines 1–3 of 3, 4 bytes]",
        ),
    ] {
        assert_eq!(
            read(&project, arguments.clone()).await.unwrap(),
            want,
            "{arguments}"
        );
    }
    let behind = read(&project, json!({"path": "a.txt", "start_line": 13}))
        .await
        .unwrap_err();
    assert!(behind.message.contains("has 12 lines"), "{behind}");
}

#[tokio::test]
async fn non_text_file_is_named_and_not_shown() {
    let project = TestProject::new(&[("src/a", "a")]);
    project.write("a.png", b"\x89PNG\r\n\x1a\n\0\0");
    project.write("blob", b"abc\0def");
    project.write("wide", b"\xff\xfea\0b\0");
    project.write("latin", b"sch\xf6n\n");
    for (path, want) in [
        ("a.png", "a PNG image, 10 bytes"),
        ("blob", "a binary file"),
        ("wide", "UTF-16"),
        ("src", "folder"),
    ] {
        let error = read(&project, json!({"path": path})).await.unwrap_err();
        assert!(
            error.code == ErrorCode::UnsupportedMedia && error.message.contains(want),
            "{path}: {error}"
        );
    }
    let latin = read(&project, json!({"path": "latin"})).await.unwrap();
    assert!(
        latin.contains("sch�n") && latin.contains("not valid UTF-8") && latin.contains("6 bytes"),
        "{latin}"
    );
    assert_eq!(
        read(&project, json!({"path": "nope"}))
            .await
            .unwrap_err()
            .code,
        ErrorCode::FileNotFound
    );
}

#[tokio::test]
async fn long_line_is_cut_at_char_and_page_at_line_boundary() {
    let mut project = TestProject::new(&[
        ("long", &format!("{}\nnext\n", "好".repeat(2000))),
        ("many", &"x".repeat(99).add("\n").repeat(500)),
    ]);
    let long = read(&project, json!({"path": "long"})).await.unwrap();
    assert!(
        long.contains("… [cut: the line has 6000 bytes]\n    2\tnext\n")
            && long.contains("1 lines cut"),
        "{long}"
    );
    assert!(!long.contains('�'));
    project.output_limit_bytes = 2048;
    let many = read(&project, json!({"path": "many", "max_lines": 1000}))
        .await
        .unwrap();
    assert!(
        many.len() <= 2048 && many.contains("of 500") && many.contains("continue with start_line="),
        "{many}"
    );
    let first = read(&project, json!({"path": "long"})).await.unwrap();
    assert!(
        first.len() <= 2048 && first.contains("[cut: the line has 6000 bytes]"),
        "the line fits: {first}"
    );
}

#[tokio::test]
async fn huge_unterminated_line_is_not_buffered() {
    let project = TestProject::new(&[]);
    project.write("huge", &vec![b'x'; 20_000_000]);
    let text = read(&project, json!({"path": "huge"})).await.unwrap();
    assert!(
        text.len() < 5_000 && text.contains("20000000 bytes"),
        "{}",
        text.len()
    );
}

#[tokio::test]
async fn a_cancelled_call_stops() {
    let project = TestProject::new(&[("a", "a\n")]);
    project.cancel.cancel();
    assert_eq!(
        read(&project, json!({"path": "a"})).await.unwrap_err().code,
        ErrorCode::Cancelled
    );
}

trait Add {
    fn add(self, tail: &str) -> String;
}

impl Add for String {
    fn add(mut self, tail: &str) -> String {
        self.push_str(tail);
        self
    }
}

#[tokio::test]
async fn image_is_passed_to_a_model_that_takes_it() {
    let project = TestProject::new(&[("pics/a.png", "")]);
    let png = b"\x89PNG\r\n\x1a\n\0rest";
    project.write("pics/a.png", png);
    project.write("a.pdf", b"%PDF-\0");
    let tool = ReadTool::new(Default::default());
    let mut context = project.context();
    context.output_limit.kinds = Arc::new([InputKind::Text, InputKind::Image]);
    let output = tool
        .call(context, json!({"path": "pics/a.png"}))
        .await
        .unwrap();
    assert_eq!(
        output.files,
        [ContentPart::inline(
            "image/png",
            Some("a.png".into()),
            png.to_vec()
        )]
    );
    // The other calls are those of a model that takes text only.
    let error = read(&project, json!({"path": "a.pdf"})).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::UnsupportedMedia);
    assert!(error.message.contains("a PDF document"), "{error}");
}

#[tokio::test]
async fn sparse_file_is_read_up_to_a_limit() {
    let project = TestProject::new(&[("sparse", "first\n")]);
    let file = std::fs::File::options()
        .write(true)
        .open(project.path().join("sparse"))
        .unwrap();
    if file.set_len(1 << 40).is_err() {
        return; // the file system does not support sparse files
    }
    // The hole starts after the bytes that are checked to detect text.
    let text = "line\n".repeat(4_000);
    std::io::Write::write_all(&mut &file, text.as_bytes()).unwrap();
    let message = project
        .call(
            &ReadTool::new(Default::default()),
            json!({"path": "sparse", "start_line": 3999}),
        )
        .await
        .unwrap();
    assert!(
        message.contains("3999\tline") && message.contains("of more than"),
        "{}",
        &message[message.len() - 200..]
    );
}
