//! Tests of hooks: their input, answers and denials, and `hooks.json`.

use std::fs;

use serde_json::json;
use soong_protocol::ErrorCode;

use super::*;

struct Home(tempfile::TempDir);

impl Home {
    fn with(hooks: &Value) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::write(
            home.0.path().join("hooks.json"),
            json!({"version": 1, "hooks": hooks}).to_string(),
        )
        .unwrap();
        home
    }

    fn load(&self, config: &Config) -> Result<Hooks, ErrorInfo> {
        let environment = Environment::of([
            ("PATH", "/usr/bin:/bin"),
            ("SERVICE_TOKEN", "canary-0123456789"),
        ]);
        Hooks::load(self.0.path(), config, &environment)
    }
}

fn hook_input(event: HookPoint) -> HookInput {
    HookInput {
        event,
        session_id: SessionId::new("s"),
        trace_id: TraceId::new("s"),
        run_id: RunId::new("r"),
        tool: Some("write".into()),
        resolved_path: None,
        arguments: Some(json!({"path": "src/a.rs"})),
        outcome: None,
        prompt: None,
        reason: None,
        tags: vec!["network".into()],
    }
}

fn one(command: &str) -> Value {
    json!([{"hooks": [{"type": "command", "command": command}]}])
}

#[tokio::test]
async fn hook_gets_input_and_only_pre_tool_use_may_deny() {
    let deny = r#"cat > heard; echo '{"decision": "deny", "reason": "not today"}'"#;
    for (point, name) in [
        (HookPoint::PreToolUse, "PreToolUse"),
        (HookPoint::PostToolUse, "PostToolUse"),
    ] {
        let home = Home::with(&json!({ name: one(deny) }));
        let hooks = home.load(&Config::default()).unwrap();
        let result = hooks.call(&hook_input(point), home.0.path()).await;
        let input: Value =
            serde_json::from_slice(&fs::read(home.0.path().join("heard")).unwrap()).unwrap();
        assert_eq!(
            (&input["event"], &input["tool"], &input["arguments"]["path"]),
            (&json!(name), &json!("write"), &json!("src/a.rs"))
        );
        match point {
            HookPoint::PreToolUse => {
                assert_eq!(
                    result,
                    HookResult {
                        denied: Some("not today".into()),
                        failures: vec![],
                        records: vec![]
                    }
                )
            }
            _ => assert!(
                result.denied.is_none() && result.failures[0].contains("hooks cannot deny"),
                "{result:?}"
            ),
        }
    }
}

#[tokio::test]
async fn failing_hook_is_reported_and_denies_nothing() {
    for (command, failure) in [
        ("exit 0", None),
        (
            "cat > /dev/null; echo '{\"decision\": \"allow\", \"logs\": [], \"metadata\": {}}'",
            None,
        ),
        ("exit 3", Some("failed (exit status: 3)")),
        ("echo oops >&2; exit 1", Some("oops")),
        ("echo nonsense", Some("its output must be")),
        ("echo '{\"decision\": \"maybe\"}'", Some("unknown variant")),
        (
            "head -c 100000 /dev/zero | tr '\\0' 'x'",
            Some("larger than 65536 bytes"),
        ),
        ("kill -9 $$", Some("signal: 9")),
        ("/nowhere/at/all", Some("failed (exit status: 127)")),
    ] {
        let home = Home::with(&json!({ "PreToolUse": one(command) }));
        let result = home
            .load(&Config::default())
            .unwrap()
            .call(&hook_input(HookPoint::PreToolUse), home.0.path())
            .await;
        assert_eq!(result.denied, None, "{command}");
        match failure {
            None => assert_eq!(result.failures, [""; 0], "{command}"),
            Some(part) => {
                assert!(
                    result.failures.len() == 1 && result.failures[0].contains(part),
                    "{command}: {result:?}"
                )
            }
        }
    }
}

/// Returns the result of a command for an event, with a file of this version.
async fn result_of(version: u64, point: HookPoint, command: &str) -> HookResult {
    let home = Home::with(&json!({}));
    let file = json!({"version": version, "hooks": {point.as_str(): one(command)}}).to_string();
    fs::write(home.0.path().join("hooks.json"), format!("\u{feff}{file}")).unwrap();
    home.load(&Config::default())
        .unwrap()
        .call(&hook_input(point), home.0.path())
        .await
}

#[tokio::test]
async fn denial_is_found_behind_other_output() {
    for command in [
        r#"printf '\357\273\277{"decision": "deny", "reason": "no"}'"#,
        r#"echo 'checked 3 files'; echo '{"decision": "deny", "reason": "no"}'"#,
        r#"echo '{"decision": "deny", "reason": "no"}'; echo '{"level": "info"}'; echo done"#,
        r#"echo '{"decision": "deny", "reason": "no"}'; echo '{"decision": "allow"}'"#,
        "printf '{\n  \"decision\": \"deny\",\n  \"reason\": \"no\"\n}\n'",
    ] {
        let result = result_of(1, HookPoint::PreToolUse, command).await;
        assert_eq!(
            (result.denied.as_deref(), result.failures.len()),
            (Some("no"), 0),
            "{command}"
        );
    }
    let allowed = result_of(
        1,
        HookPoint::PreToolUse,
        r#"echo 'checking'; echo '{"decision": "allow"}'"#,
    )
    .await;
    assert_eq!(allowed, HookResult::default());
}

#[tokio::test]
async fn exit_code_2_denies_since_version_2() {
    let command = "echo 'not in this folder' >&2; exit 2";
    for (version, point, denied, failure) in [
        (
            1,
            HookPoint::PreToolUse,
            None,
            Some("failed (exit status: 2): not in this folder"),
        ),
        (2, HookPoint::PreToolUse, Some("not in this folder"), None),
        (2, HookPoint::Stop, Some("not in this folder"), None),
        (
            2,
            HookPoint::PostToolUse,
            None,
            Some("failed (exit status: 2)"),
        ),
    ] {
        let result = result_of(version, point, command).await;
        assert_eq!(result.denied.as_deref(), denied, "{version} {point:?}");
        assert_eq!(
            result.failures.len(),
            usize::from(failure.is_some()),
            "{version} {point:?}"
        );
        assert!(
            failure.is_none_or(|part| result.failures[0].contains(part)),
            "{result:?}"
        );
    }
    let silent = result_of(2, HookPoint::PreToolUse, "exit 2").await;
    assert_eq!(silent.denied.as_deref(), Some("hook `exit 2` denied it"));
    let other = result_of(2, HookPoint::PreToolUse, "exit 3").await;
    assert!(
        other.denied.is_none() && other.failures.len() == 1,
        "{other:?}"
    );
}

#[tokio::test]
async fn slow_hook_is_killed_after_its_timeout() {
    let home = Home::with(&json!({
        "PreToolUse": [{"hooks": [{"type": "command", "command": "(setsid sleep 60 &) ; sleep 60", "timeout_ms": 300}]}]
    }));
    let result = home
        .load(&Config::default())
        .unwrap()
        .call(&hook_input(HookPoint::PreToolUse), home.0.path())
        .await;
    assert!(
        result.failures[0].contains("timed out after 300 ms"),
        "{result:?}"
    );
}

#[tokio::test]
async fn hook_environment_contains_no_secrets() {
    let home = Home::with(&json!({ "PreToolUse": one("env > heard") }));
    home.load(&Config::default())
        .unwrap()
        .call(&hook_input(HookPoint::PreToolUse), home.0.path())
        .await;
    let variables = fs::read_to_string(home.0.path().join("heard")).unwrap();
    assert!(
        variables.contains("PATH=") && !variables.contains("canary"),
        "{variables}"
    );
}

#[test]
fn matcher_requires_all_its_conditions() {
    let project = Path::new("/p");
    for (matcher, fit) in [
        (json!({}), true),
        (json!({"tool": "write"}), true),
        (json!({"tool": "edit"}), false),
        (json!({"tag": "network"}), true),
        (json!({"tag": "mcp"}), false),
        (json!({"path_prefix": "src"}), true),
        (json!({"path_prefix": "/p/src/"}), true),
        (json!({"path_prefix": "sr"}), false),
        (json!({"path_prefix": "docs/../src"}), true),
        (json!({"tool": "write", "tag": "mcp"}), false),
    ] {
        let read: Matcher = serde_json::from_value(matcher.clone()).unwrap();
        assert_eq!(
            matches(&read, &hook_input(HookPoint::PreToolUse), project),
            fit,
            "{matcher}"
        );
    }
}

#[test]
fn a_path_prefix_matches_the_file_that_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().canonicalize().unwrap();
    fs::create_dir_all(project.join("secret/deep")).unwrap();
    fs::create_dir(project.join("open")).unwrap();
    std::os::unix::fs::symlink(project.join("secret"), project.join("link")).unwrap();
    for (prefix, opened, fit) in [
        ("secret", "secret/x", true),
        ("secret", "secret/deep/x", true),
        ("secret", "open/x", false),
        ("link", "secret/x", true),
        ("secret/new/file", "secret/new/file", true),
        ("link/new", "secret/new/file", true),
    ] {
        let matcher: Matcher = serde_json::from_value(json!({ "path_prefix": prefix })).unwrap();
        // The name in the arguments does not show the opened file.
        let input = HookInput {
            resolved_path: Some(project.join(opened)),
            ..hook_input(HookPoint::PreToolUse)
        };
        assert_eq!(
            matches(&matcher, &input, &project),
            fit,
            "{prefix} {opened}"
        );
    }
}

#[test]
fn invalid_hooks_file_is_rejected_with_its_path() {
    let home = Home::with(&json!({}));
    let path = home.0.path().join("hooks.json");
    for (text, want) in [
        ("{", "EOF while parsing"),
        (r#"{"version": 3}"#, "unknown version 3"),
        (r#"{"hooks": {}}"#, "missing field `version`"),
        (
            r#"{"version": 1, "hooks": {"PreTool": []}}"#,
            "unknown variant `PreTool`",
        ),
        (
            r#"{"version": 1, "hooks": {"Stop": [{"hooks": [{"type": "http", "command": "x"}]}]}}"#,
            "unknown variant `http`",
        ),
        (
            r#"{"version": 1, "hooks": {"Stop": [{"hooks": [{"type": "command", "command": " "}]}]}}"#,
            "command is empty",
        ),
        (
            r#"{"version": 1, "hooks": {"Stop": [{"matchers": {}, "hooks": []}]}}"#,
            "unknown field `matchers`",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let error = home.load(&Config::default()).unwrap_err();
        assert_eq!(error.code, ErrorCode::ConfigError);
        assert!(
            error.message.contains(want) && error.message.contains("hooks.json"),
            "{text}: {error}"
        );
    }
    let mut config = Config::default();
    config.hooks.enabled = false;
    assert!(
        home.load(&config).is_ok(),
        "what is switched off is not looked at"
    );
    fs::remove_file(&path).unwrap();
    assert!(
        !home
            .load(&Config::default())
            .unwrap()
            .has_hooks(HookPoint::Stop)
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::write(&path, r#"{"version": 1}"#).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(
            home.load(&Config::default())
                .unwrap_err()
                .message
                .contains("chmod o-w")
        );
    }
}
