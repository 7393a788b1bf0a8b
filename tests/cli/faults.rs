//! Fault injection through the real binary: the faults that `SOONG_FAULTS` causes, and the recovery
//! from them.

use std::{
    os::unix::process::ExitStatusExt,
    process::Command,
    time::{Duration, Instant},
};

use crate::process::{KillOnDrop, ProcessOutput, TestHome};
use crate::service::ManualModelService;
use serde_json::json;

/// Runs the demo in the world's home with a fault plan.
fn demo(world: &TestHome, plan: &str) -> ProcessOutput {
    let home = world.home().display().to_string();
    let mut command = world.command(&["demo", "--json", "--home", &home]);
    KillOnDrop {
        child: command.env("SOONG_FAULTS", plan).spawn().unwrap(),
    }
    .finish()
}

/// Counts events of a kind.
fn count(ran: &ProcessOutput, kind: &str) -> usize {
    ran.json_lines()
        .iter()
        .filter(|event| event["event"] == kind)
        .count()
}

#[test]
fn home_opens_again_after_a_kill_at_every_fault_point() {
    for (plan, begun) in [
        ("after_append@2=kill", true),
        ("call_model@3", true),
        ("tool_ended@2=kill", true),
        ("before_commit@1=kill", false),
        ("after_commit@4=kill", true),
        ("after_blob@1=kill", true),
        ("before_journal@2=kill", true),
        ("after_journal@1=kill", true),
    ] {
        let world = TestHome::new();
        let home = world.home().display().to_string();
        let mut command = world.command(&["demo", "--json", "--home", &home]);
        let output = command.env("SOONG_FAULTS", plan).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.signal(),
            Some(9),
            "{plan}: {:?}\n{err}",
            output.status
        );
        let plan = if plan.contains('=') {
            plan.to_owned()
        } else {
            format!("{plan}=kill")
        };
        assert!(
            err.contains(&format!("note: fault injection enabled: {plan}\n")),
            "{err}"
        );
        let sessions = world
            .run(&["sessions", "list", "--json"])
            .expect_code(0)
            .json();
        assert_eq!(
            sessions.as_array().unwrap().len(),
            usize::from(begun),
            "{plan}"
        );
        // The next process can open the home and run in it.
        let (_, result) = world.demo(&[]);
        assert_eq!(result["status"], "completed", "{plan}");
    }
}

#[test]
fn demo_completes_despite_injected_failures() {
    let plan_and_restarts = [
        ("before_append@5=fail", 1),
        ("after_append@2=fail,run_tool@3=fail", 2),
        ("model_answered@1=fail", 1),
        ("before_commit@6=fail", 0),
        ("after_commit@6=fail", 0),
        ("before_blob@1=fail", 0),
        ("before_journal@2=fail,after_journal@3=fail", 0),
        ("after_blob@1=fail", 0),
    ];
    for (plan, restarts) in plan_and_restarts {
        let world = TestHome::new();
        let ran = demo(&world, plan).expect_code(0);
        ran.expect_stderr(&["note: fault injection enabled: "]);
        assert_eq!(
            ran.json_lines().last().unwrap()["result"]["status"],
            "completed",
            "{plan}"
        );
        assert_eq!(count(&ran, "actor_restarted"), restarts, "{plan}");
        assert!(!world.home().join("logs").read_dir().unwrap().any(|entry| {
            let name = entry.unwrap().file_name();
            name.to_string_lossy().starts_with("panic-")
        }));
    }
}

#[test]
fn injected_delay_slows_the_operation() {
    let world = TestHome::new();
    let start = Instant::now();
    demo(&world, "call_model@1=delay:150,before_commit@4=delay:150").expect_code(0);
    assert!(
        start.elapsed() >= Duration::from_millis(300),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn invalid_fault_plan_is_rejected_before_any_work() {
    let world = TestHome::new();
    demo(&world, "after_apend@2=kill")
        .expect_code(2)
        .expect_stderr(&[
            "SOONG_FAULTS: there is no fault point \"after_apend\"",
            "after_append",
        ]);
    assert!(!world.home().join("sessions.sqlite").exists());
    // A command that opens no home ignores the plan.
    let mut command = world.command(&["presets", "list"]);
    KillOnDrop {
        child: command.env("SOONG_FAULTS", "nonsense").spawn().unwrap(),
    }
    .finish()
    .expect_code(0);
}

#[test]
fn interrupted_run_resumes_with_its_own_model() {
    let world = TestHome::new();
    let mut command =
        world.command(&["run", "--model", "offline", "--session", "s", "look around"]);
    let killed = KillOnDrop {
        child: command
            .env("SOONG_FAULTS", "call_model@2=kill")
            .spawn()
            .unwrap(),
    }
    .finish();
    assert_eq!(killed.code, None, "{}", killed.err);
    // A message for the default model requires that model. Resuming the interrupted run does not.
    let message = ["run", "--session", "s", "--reset", "model", "and now?"];
    world
        .run(&message)
        .expect_code(2)
        .expect_stderr(&["no usable model"]);
    world.run(&["run", "--trace", "s"]).expect_code(0);
    // Now no run is interrupted, and there is no message to answer. The command fails for that
    // reason, not for the model.
    world
        .run(&["run", "--trace", "s"])
        .expect_code(2)
        .expect_stderr(&["ends with an answer"]);
}

#[test]
fn killed_deletion_is_completed_and_failed_one_keeps_all() {
    for (plan, code, is_gone) in [
        ("before_removal@1=kill", None, true),
        ("after_removal@1=kill", None, true),
        ("before_removal@1=fail", Some(1), false),
    ] {
        let world = TestHome::new();
        let (_, result) = world.demo(&[]);
        let session = result["session_id"].as_str().unwrap();
        let folder = world.home().join("sessions").join(session);
        assert!(folder.exists());
        let mut command = world.command(&["sessions", "delete", session]);
        let ran = KillOnDrop {
            child: command.env("SOONG_FAULTS", plan).spawn().unwrap(),
        }
        .finish();
        assert_eq!(ran.code, code, "{plan}: {}", ran.err);
        // The next owner completes the deletion.
        world
            .run(&["run", "--model", "offline", "--session", "other", "x"])
            .expect_code(0);
        let is_listed = world
            .run(&["sessions", "list", "--json"])
            .expect_code(0)
            .out
            .contains(session);
        assert_eq!((!is_listed, !folder.exists()), (is_gone, is_gone), "{plan}");
    }
}

/// If the write-ahead log were copied to the database only at the end, it would fill this disk long
/// before the data does.
#[test]
fn run_of_many_turns_fits_on_a_disk_of_8_mib() {
    const TURNS: usize = 190;
    if !Command::new("unshare")
        .args(["-rm", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!(
            "skipped: this machine lets nobody mount a file system of their own (unshare -rm)"
        );
        return;
    }
    let world = TestHome::new();
    let service = ManualModelService::new();
    std::fs::create_dir(world.home()).unwrap();
    let soong = world.command(&["run", "--json", "List it again and again"]);
    let mut command = Command::new("unshare");
    let script = r#"mount -t tmpfs -o size=8m tmpfs "$1" && shift && exec "$@""#;
    command
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(world.home())
        .arg(soong.get_program())
        .args(soong.get_args());
    command.envs(
        soong
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command
        .env("OPENAI_BASE_URL", &service.address)
        .current_dir(world.project());
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped());
    let run = KillOnDrop {
        child: command
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap(),
    };
    for turn in 0..TURNS {
        let mut request = service.next();
        // The same text or the same call again and again would end the run.
        request.text(&format!("It is listed once more, now number {turn}. ").repeat(25));
        let path = if turn % 2 == 0 { "." } else { "./" };
        request.call("list_files", &json!({ "path": path }));
        request.end();
    }
    service.next().answer("Done.");
    let ran = run.finish().expect_code(0);
    assert_eq!(
        ran.json_lines().last().unwrap()["result"]["status"],
        "completed"
    );
    assert!(count(&ran, "context_built") > TURNS);
}
