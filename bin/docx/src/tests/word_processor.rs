//! Test that LibreOffice, if it is installed, opens the sample and shows its words.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use super::{SAMPLE, docx};

/// Runs a program to its end, or kills it after a timeout. Returns `None` if it is not installed.
fn run(program: &str, arguments: &[&str], folder: &Path) -> Option<bool> {
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut output = child.stdout.take().unwrap();
    let (ended, end) = mpsc::channel();
    // Its output ends when the program ends.
    std::thread::spawn(move || {
        ended.send(std::io::copy(&mut output, &mut std::io::sink()).is_ok())
    });
    if end.recv_timeout(Duration::from_secs(120)).is_err() {
        let _ = child.kill();
    }
    Some(child.wait().unwrap().success())
}

#[test]
fn libreoffice_opens_sample_and_shows_its_words() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("sample.docx"),
        docx("The title", SAMPLE).unwrap(),
    )
    .unwrap();
    // Use a separate profile, because the user's may be in use.
    let profile = format!(
        "-env:UserInstallation=file://{}",
        folder.path().join("profile").display()
    );
    let arguments = [&profile, "--headless", "--convert-to", "pdf", "sample.docx"];
    let converted = ["soffice", "libreoffice"]
        .iter()
        .find_map(|program| run(program, &arguments, folder.path()));
    let Some(converted) = converted else {
        return println!("no LibreOffice here: only the XML was checked");
    };
    assert!(
        converted && folder.path().join("sample.pdf").exists(),
        "LibreOffice did not open the document"
    );
    if run("pdftotext", &["sample.pdf", "sample.txt"], folder.path()) != Some(true) {
        return println!("no pdftotext here: the document opens, its words were not looked for");
    }
    let shown = std::fs::read_to_string(folder.path().join("sample.txt")).unwrap();
    for words in [
        "The title",
        "Heading one",
        "fn in_list() {}",
        "eight two",
        "Nobody refers",
        "restarts at one",
        "Long note",
    ] {
        assert!(shown.contains(words), "{words:?} is missing in {shown}");
    }
}
