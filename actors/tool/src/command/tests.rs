//! Tests of decisions about command lines.

use super::*;

const PROJECT: &str = "/p";

fn pattern(text: &str) -> CommandPattern {
    CommandPattern::parse(text).unwrap_or_else(|| panic!("{text}"))
}

/// Decides about `command` after a session grant for `granted`.
fn after_grant(granted: &str, command: &str) -> CommandVerdict {
    let scope = session_scope(granted, PROJECT);
    decide(
        command,
        PROJECT,
        Rules {
            session: &[&scope],
            ..Rules::default()
        },
    )
}

#[test]
fn session_grant_covers_subcommand_and_harmless_options() {
    for (granted, command, is_covered) in [
        ("git status", "git status", true),
        ("git status", "git status -sb --porcelain=v2 src", true),
        ("git status", "git --no-pager status", true),
        ("git status", "git status && git status -s", true),
        ("git status", "git status | git status", true),
        ("git log -3", "git log --oneline -n 5 main", true),
        ("ls", "ls -la src", true),
        ("cargo test", "cargo test --release parses", true),
        ("cargo test", "cargo test -p soong", true),
        // Known attacks that could run without permission after a grant for `git status`.
        ("git status", "git clean -fdx", false),
        ("git status", "git log --output=FILE", false),
        ("git log", "git log --output=FILE", false),
        ("git log", "git log --outp=FILE", false),
        ("git log", "git log -- --output=FILE", false),
        ("git status", "git clone -u ./x here", false),
        ("git fetch", "git fetch --upload-pack=./x", false),
        ("git fetch", "git fetch --upload-p=./x", false),
        ("git status", "git -C /elsewhere status", false),
        ("git status", "git -c core.fsmonitor=./x status", false),
        ("git status", "./git status", false),
        ("git status", "git status > file", false),
        ("git status", "GIT_DIR=x git status", false),
        ("git status", "git status $(./x)", false),
        ("git status", "git status *", false),
        ("git status", "git status; ./x", false),
        ("git branch", "git branch --format -- -D victim", false),
        ("sort a", "sort --compress-program=./x a", false),
        ("sort a", "sort -o b a", false),
        ("gcc a.c", "gcc -wrapper ./x a.c", false),
        ("pip list", "pip install x", false),
        ("apt-get update", "apt-get -o APT::x=./x update", false),
        ("rg x", "rg --pre ./x y", false),
        ("find .", "find . -exec ./x ;", false),
        ("tar tf a", "tar --to-command=./x -xf a", false),
        ("xargs ls", "xargs ./x", false),
        ("env ls", "env ./x", false),
        ("cargo test", "cargo --config x test", false),
        ("cargo test", "cargo run", false),
        ("npm install", "npm install left-pad", false),
        ("npm ci", "npm ci --registry=http://x", false),
        ("docker ps", "docker exec c sh", false),
        ("uniq a", "uniq a b", false),
        ("uniq a", "uniq -- -c OUT", false),
        ("git log", "git log -- src", true),
        // Any other line is granted only word for word.
        ("git log | head -3 > out", "git log | head -3 > out", true),
        ("git log | head -3 > out", "git log | head -4 > out", false),
        ("./run.sh --fast", "./run.sh --fast", true),
        ("./run.sh --fast", "./run.sh --slow", false),
        (
            "for i in 1 2; do echo $i; done",
            "for i in 1 2; do echo $i; done",
            true,
        ),
        ("pip install x", "pip install x", true),
        ("pip install x", "pip install y", false),
    ] {
        let want = if is_covered {
            CommandVerdict::Allow
        } else {
            CommandVerdict::Ask
        };
        assert_eq!(
            after_grant(granted, command),
            want,
            "{granted:?} then {command:?}"
        );
    }
    let scope = session_scope("git status", PROJECT);
    let rules = Rules {
        session: &[&scope],
        ..Rules::default()
    };
    assert_eq!(
        decide("git status", "/elsewhere", rules),
        CommandVerdict::Ask,
        "another directory"
    );
}

#[test]
fn destructive_command_gets_no_session_grant() {
    for command in [
        "git push origin main",
        "git clean -fdx",
        "git reset --hard",
        "git reset --har HEAD~1",
        "git checkout -- .",
        "git rebase main",
        "git -C sub push",
        "git --git-dir x push",
        "rm -r src",
        "rm -fr src",
        "/bin/rm -rf src",
        "sudo ls",
        "timeout 5 rm -r src",
        "env A=b rm -r src",
        "nice -n 5 git push",
        "npm publish",
        "cargo publish",
        "docker run x",
        "docker exec c ls",
        "kubectl delete pod x",
        "kubectl apply -f x",
        "kubectl -n prod delete pod x",
        "dd if=a of=b",
        "mkfs.ext4 /dev/x",
        "python3 -c 'print(1)'",
        "python3.11 -c x",
        "perl -e x",
        "node --eval x",
        "sh -c ls",
        "bash -lc ls",
        "cat x | sh",
        "cat x | bash",
        "cat x | sudo sh",
        "cat x | python3",
        "find . -delete",
        "eval ls",
        "xargs rm",
        "git status && rm -r src",
    ] {
        assert_eq!(session_scope(command, PROJECT), Scope::Call, "{command}");
        assert_eq!(
            after_grant(command, command),
            CommandVerdict::Ask,
            "{command}"
        );
    }
    for command in [
        "git status",
        "ls -la",
        "cargo build",
        "rm file",
        "python3 x.py",
        "sh script.sh",
        "echo sudo",
    ] {
        assert_ne!(session_scope(command, PROJECT), Scope::Call, "{command}");
    }
}

#[test]
fn initial_grants_cover_named_commands_only() {
    let push = pattern("git push *");
    let status = pattern("git status");
    let any = pattern("./tool *");
    for (patterns, programs, command, want) in [
        (&[&push][..], &[][..], "git push", CommandVerdict::Allow),
        (
            &[&push],
            &[],
            "git push origin 'a b'",
            CommandVerdict::Allow,
        ),
        (
            &[&push, &status],
            &[],
            "git status && git push",
            CommandVerdict::Allow,
        ),
        (&[&push], &[], "git status && git push", CommandVerdict::Ask),
        (&[&push], &[], "git pushy", CommandVerdict::Ask),
        (&[&push], &[], "git -C x push", CommandVerdict::Ask),
        (&[&push], &[], "git push $X", CommandVerdict::Ask),
        (&[&push], &[], "git push > log", CommandVerdict::Ask),
        (
            &[&push],
            &[],
            "git push > /dev/null 2>&1",
            CommandVerdict::Allow,
        ),
        (
            &[&push],
            &[],
            "git push &> /dev/null",
            CommandVerdict::Allow,
        ),
        (&[&push], &[], "A=b git push", CommandVerdict::Ask),
        (&[&status], &[], "git status -s", CommandVerdict::Ask),
        (&[&any], &[], "./tool x; ./tool y", CommandVerdict::Allow),
        (
            &[],
            &["cargo"],
            "cargo build --release",
            CommandVerdict::Allow,
        ),
        (&[], &["cargo"], "cargo run", CommandVerdict::Allow),
        (&[], &["cargo"], "cargo publish", CommandVerdict::Ask),
        (&[], &["cargo"], "cargo build && ls", CommandVerdict::Ask),
        (
            &[],
            &["cargo", "ls"],
            "cargo build && ls",
            CommandVerdict::Allow,
        ),
        (&[], &["git"], "git push", CommandVerdict::Ask),
        (
            &[],
            &["git"],
            "git -c alias.x='!./x' x",
            CommandVerdict::Ask,
        ),
        (&[], &["timeout"], "timeout 5 sudo id", CommandVerdict::Ask),
        (&[], &["tar"], "tar xf a", CommandVerdict::Ask),
        (
            &[&push],
            &["git"],
            "git push; git status",
            CommandVerdict::Ask,
        ),
        (&[], &["cargo"], "cargo-x", CommandVerdict::Ask),
        (&[], &["cargo"], "/tmp/cargo build", CommandVerdict::Ask),
        (
            &[],
            &["eval", "source", "."],
            "eval ls",
            CommandVerdict::Ask,
        ),
        (&[], &["eval", "source", "."], ". file", CommandVerdict::Ask),
    ] {
        let rules = Rules {
            patterns,
            programs,
            ..Rules::default()
        };
        assert_eq!(
            decide(command, PROJECT, rules),
            want,
            "{patterns:?} {programs:?} {command}"
        );
        let all = Rules {
            allows_all: true,
            ..rules
        };
        assert_eq!(
            decide(command, PROJECT, all),
            CommandVerdict::Allow,
            "{command}"
        );
    }
    for text in ["", "*", "*x", "git pu*", "a; b", "a > b", "A=b c"] {
        assert_eq!(CommandPattern::parse(text), None, "{text:?}");
    }
}

#[test]
fn denied_commands_are_denied_in_every_form() {
    let push = pattern("git push *");
    let curl = pattern("curl *");
    let clean = pattern("git clean -fdx");
    let deploy = pattern("./deploy.sh *");
    let sudo = pattern("sudo *");
    for (denied, command, want) in [
        (&push, "git push", CommandVerdict::Deny),
        (&push, "git push origin", CommandVerdict::Deny),
        (&push, "ls; git push", CommandVerdict::Deny),
        (&push, "ls | git push", CommandVerdict::Deny),
        (&push, "/usr/bin/git push", CommandVerdict::Deny),
        (&push, "'git' \"push\"", CommandVerdict::Deny),
        (&push, "gi\\t push", CommandVerdict::Deny),
        (&push, "git -C sub push", CommandVerdict::Deny),
        (&push, "git --no-pager -C sub push -f", CommandVerdict::Deny),
        (&push, "git -c a=b push", CommandVerdict::Deny),
        (&push, "env A=b git push", CommandVerdict::Deny),
        (
            &push,
            "env -i -u X timeout -k 1 5 nice -n 5 sudo -u me git push",
            CommandVerdict::Deny,
        ),
        (&push, "A=b git push > log", CommandVerdict::Deny),
        (&push, "git -C . -C . push", CommandVerdict::Deny),
        (
            &push,
            "git --git-dir .git --work-tree . push",
            CommandVerdict::Deny,
        ),
        (&push, "git -C . --no-pager push", CommandVerdict::Deny),
        (
            &push,
            "/usr/lib/git-core/git-push origin",
            CommandVerdict::Deny,
        ),
        (
            &push,
            "git -c alias.x=push x",
            CommandVerdict::AskUncheckable,
        ),
        (&push, "env -S 'git push'", CommandVerdict::AskUncheckable),
        (&push, "unshare -r git push", CommandVerdict::Deny),
        (&push, "chroot / git push", CommandVerdict::Deny),
        (
            &push,
            "setpriv --no-new-privs git push",
            CommandVerdict::Deny,
        ),
        (&push, "systemd-run --user git push", CommandVerdict::Deny),
        (&push, "su -c 'git push'", CommandVerdict::AskUncheckable),
        (
            &push,
            "runuser -u me --command='git push'",
            CommandVerdict::AskUncheckable,
        ),
        (
            &push,
            "git submodule foreach 'git push'",
            CommandVerdict::AskUncheckable,
        ),
        (
            &push,
            "git rebase -x 'git push' main",
            CommandVerdict::AskUncheckable,
        ),
        (&push, "git bisect run ./x", CommandVerdict::AskUncheckable),
        (&push, "jobs -x git push", CommandVerdict::AskUncheckable),
        (&push, "alias x='git push'", CommandVerdict::AskUncheckable),
        (
            &push,
            "test -v 'a[$(git push)]'",
            CommandVerdict::AskUncheckable,
        ),
        (&push, "busybox sh -c x", CommandVerdict::AskUncheckable),
        (&deploy, "./deploy.sh now", CommandVerdict::Deny),
        (&deploy, "sh ./deploy.sh", CommandVerdict::AskUncheckable),
        (&sudo, "env sudo ls", CommandVerdict::Deny),
        (&push, "git status", CommandVerdict::Allow),
        (&push, "echo git push", CommandVerdict::Allow),
        (&push, "git $X", CommandVerdict::AskUncheckable),
        (&push, "bash -c 'git push'", CommandVerdict::AskUncheckable),
        (&push, "sh run.sh", CommandVerdict::AskUncheckable),
        (
            &push,
            "echo push | xargs git",
            CommandVerdict::AskUncheckable,
        ),
        (
            &push,
            "find . -exec git push ;",
            CommandVerdict::AskUncheckable,
        ),
        (&push, "eval 'git push'", CommandVerdict::AskUncheckable),
        (&push, "(git push)", CommandVerdict::AskUncheckable),
        (
            &push,
            "if true; then git push; fi",
            CommandVerdict::AskUncheckable,
        ),
        (&curl, "curl -s http://x", CommandVerdict::Deny),
        (&curl, "sudo curl", CommandVerdict::Deny),
        (&curl, "wget x", CommandVerdict::Allow),
        (&clean, "git clean -fdx", CommandVerdict::Deny),
    ] {
        let rules = Rules {
            allows_all: true,
            denied: &[denied],
            ..Rules::default()
        };
        assert_eq!(
            decide(command, PROJECT, rules),
            want,
            "{denied:?} {command}"
        );
    }
}

#[test]
fn line_is_parsed_only_if_shell_runs_exactly_its_words() {
    for (text, want) in [
        ("a b", Some(vec!["a b"])),
        ("a  'b c' \"d\" e\\ f", Some(vec!["a b c d e f"])),
        (
            "a; b && c || d | e & f\ng",
            Some(vec!["a", "b", "c", "d", "e", "f", "g"]),
        ),
        ("a;", Some(vec!["a"])),
        ("a &", Some(vec!["a"])),
        ("a b=c --d=e~f x:y", Some(vec!["a b=c --d=e~f x:y"])),
        ("ü 'ß'", Some(vec!["ü ß"])),
        ("", None),
        ("a |", None),
        ("; a", None),
        ("a ;; b", None),
        ("a $b", None),
        ("a \"$b\"", None),
        ("a `b`", None),
        ("a ~/b", None),
        ("a b=~/c", None),
        ("a [b]", None),
        ("a {b,c}", None),
        ("(a)", None),
        ("a # b", None),
        ("a 'b", None),
        ("a \"b", None),
        ("a \\", None),
        ("a <(b)", None),
        ("a << b", None),
        ("a <<< b", None),
        ("! a", None),
        ("while a; do b; done", None),
        ("a\\\nb", None),
        ("f() { a; }", None),
        ("A=b", None),
        ("> file", None),
    ] {
        let parsed = line::CommandLine::parse(text);
        let words = parsed.map(|line| {
            line.parts
                .iter()
                .map(|part| part.words.join(" "))
                .collect::<Vec<_>>()
        });
        assert_eq!(
            words,
            want.map(|parts| parts.into_iter().map(str::to_owned).collect()),
            "{text:?}"
        );
    }
}

#[test]
fn long_command_line_is_decided_quickly() {
    for command in [
        "env ".repeat(5_000),
        format!("x {}", "-a ".repeat(30_000)),
        "a;".repeat(40_000),
    ] {
        let verdict = decide(
            &command,
            PROJECT,
            Rules {
                allows_all: true,
                ..Rules::default()
            },
        );
        assert_eq!(verdict, CommandVerdict::Allow);
        assert!(matches!(
            session_scope(&command, PROJECT),
            Scope::CommandLine { .. }
        ));
    }
}
