//! Tests of starting programs, their input and output, and ending them.

use std::{fs, time::Instant};

use super::*;

fn shell(script: &str) -> SpawnOptions {
    let variables = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into();
    SpawnOptions::new("/bin/sh", Path::new("/"), variables).arguments(["-c", script])
}

async fn ran(script: &str, input: &[u8]) -> (Option<i32>, String, String) {
    let finished = shell(script)
        .run(input, Duration::from_secs(60), 1_000)
        .await
        .unwrap();
    let text = |ends: &HeadTailBuffer| String::from_utf8_lossy(ends.head()).into_owned();
    (
        finished.status.and_then(|status| status.code()),
        text(&finished.stdout),
        text(&finished.stderr),
    )
}

#[test]
fn head_and_tail_are_kept_for_any_chunk_size() {
    let bytes: Vec<u8> = (0..100).collect();
    for (head, tail) in [
        (0, 0),
        (0, 7),
        (7, 0),
        (7, 7),
        (3, 50),
        (50, 50),
        (60, 60),
        (100, 0),
        (0, 100),
    ] {
        for chunk in [1, 2, 3, 7, 8, 50, 99, 100] {
            let mut ends = HeadTailBuffer::new(head, tail);
            bytes.chunks(chunk).for_each(|chunk| ends.push(chunk));
            let name = format!("{head} and {tail} of 100 by {chunk}");
            assert_eq!(ends.head(), &bytes[..head], "{name}");
            assert_eq!(ends.tail(), bytes[100 - tail.min(100 - head)..], "{name}");
            assert_eq!(
                (ends.total(), ends.dropped_bytes()),
                (100, (100_u64).saturating_sub((head + tail) as u64)),
                "{name}"
            );
        }
    }
}

#[tokio::test]
async fn program_reads_stdin_and_stdout_stderr_are_separate() {
    assert_eq!(
        ran("cat; echo err >&2; exit 3", b"input").await,
        (Some(3), "input".into(), "err\n".into())
    );
    assert_eq!(
        ran("true", &vec![b'x'; 1_000_000]).await,
        (Some(0), "".into(), "".into()),
        "it reads nothing"
    );
    let (status, out, _) = ran("cat", &vec![b'x'; 1_000_000]).await;
    assert_eq!(
        (status, out.len()),
        (Some(0), 1_000),
        "only so much is kept"
    );
    assert_eq!(ran("kill -9 $$", b"").await.0, None);
    let error = SpawnOptions::new("/no/such/program", Path::new("/"), BTreeMap::new())
        .start()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn program_gets_only_given_variables_and_its_tag() {
    let (_, shown, _) = ran("env", b"").await;
    let mut names: Vec<&str> = shown
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["PATH", "SOONG_CALL"]);
}

/// Returns whether a process is alive.
fn lives(pid: &str) -> bool {
    let pid = pid
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("no process id: {pid:?}"));
    process_table::read_one(pid).is_some_and(|process| !process.is_dead)
}

#[tokio::test]
async fn background_processes_are_killed_when_program_ends() {
    for script in [
        "sleep 1000 & echo $!",
        "env -i setsid sleep 1000 >/dev/null 2>&1 & echo $!",
    ] {
        let (status, pid, _) = ran(script, b"").await;
        assert_eq!(status, Some(0), "{script}");
        assert!(!lives(&pid), "{script}");
    }
    // A program that exceeds its time limit has no status; its output so far is kept.
    let finished = shell("echo $$; sleep 1000")
        .run(b"", Duration::from_secs(1), 1_000)
        .await
        .unwrap();
    assert!(finished.status.is_none() && !lives(&String::from_utf8_lossy(finished.stdout.head())));
}

#[tokio::test]
async fn dropped_process_tree_is_killed() {
    let mut started = shell("trap '' TERM; setsid sleep 1000 & echo $!; sleep 1000")
        .start()
        .await
        .unwrap();
    let mut pid = [0; 16];
    let count = started.stdout.read(&mut pid).await.unwrap();
    let pid = String::from_utf8_lossy(&pid[..count]).into_owned();
    assert!(lives(&pid));
    struct DropSignal(std::sync::mpsc::Sender<()>);
    impl Drop for DropSignal {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (sender, gone) = std::sync::mpsc::channel();
    started
        .process_tree
        .attach(std::sync::Mutex::new(DropSignal(sender)));
    drop(started);
    gone.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(!lives(&pid));
}

#[tokio::test]
async fn kept_values_are_dropped_after_process_tree_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let mut started = shell(&format!("cd {} && sleep 1000", path.display()))
        .start()
        .await
        .unwrap();
    started.process_tree.attach(folder);
    assert!(path.exists());
    let start = Instant::now();
    let ended = started.process_tree.end().await;
    assert_eq!(ended.survivors, 0);
    assert!(!path.exists() && start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn tool_process_is_recognized_as_confined_peer() {
    let mut plain = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    assert!(
        !is_tool_process(plain.id()),
        "a child of our own that no tool started"
    );
    assert!(!is_tool_process(std::process::id()), "ourselves");
    plain.kill().unwrap();
    plain.wait().unwrap();
    assert!(
        is_tool_process(plain.id()),
        "nobody: it cannot be looked at"
    );
    assert!(
        is_tool_process(0),
        "a process that is not visible from here"
    );
    for (name, script, without) in [
        ("itself", "echo $$; exec sleep 1000", false),
        (
            "itself, without environment",
            "echo $$; exec env -i sleep 1000",
            false,
        ),
        (
            "a child without signs",
            "(exec env -i sh -c 'echo $$; exec sleep 1000') & sleep 1000",
            false,
        ),
        (
            "one without new privileges",
            "echo $$; exec env -i sleep 1000",
            true,
        ),
    ] {
        let launch = if without {
            shell(script).without_new_privileges()
        } else {
            shell(script)
        };
        let mut started = launch.start().await.unwrap();
        let mut pid = [0; 16];
        let count = started.stdout.read(&mut pid).await.unwrap();
        let pid = String::from_utf8_lossy(&pid[..count])
            .trim()
            .parse()
            .unwrap();
        assert!(is_tool_process(pid), "{name}");
        started.process_tree.end().await;
    }
}

#[test]
fn program_is_searched_in_absolute_path_entries_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    fs::write(folder.path().join("plain"), "x").unwrap();
    fs::create_dir(folder.path().join("sh")).unwrap();
    for (paths, name, want) in [
        (format!("{path}:/bin"), "sh", Some("/bin/sh")),
        (format!("relative:.:{path}:/bin"), "sh", Some("/bin/sh")),
        (path.to_owned(), "plain", None),
        ("bin".to_owned(), "sh", None),
    ] {
        assert_eq!(
            find_program(name, Some(&paths)),
            want.map(PathBuf::from),
            "{name} in {paths}"
        );
    }
}
