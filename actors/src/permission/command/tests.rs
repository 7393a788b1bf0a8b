//! Tests of decisions about command lines.

use super::*;

const PROJECT: &str = "/p";

fn pattern(text: &str) -> CommandPattern {
    CommandPattern::parse(text).unwrap_or_else(|| panic!("{text}"))
}

/// Decides about `command` after a session grant for `granted`.
fn after_grant(granted: &str, command: &str) -> Verdict {
    let scope = session_scope(granted, PROJECT);
    decide(command, PROJECT, Rules { session: &[&scope], ..Rules::default() })
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
        ("for i in 1 2; do echo $i; done", "for i in 1 2; do echo $i; done", true),
        ("pip install x", "pip install x", true),
        ("pip install x", "pip install y", false),
    ] {
        let want = if is_covered { Verdict::Run } else { Verdict::Ask };
        assert_eq!(after_grant(granted, command), want, "{granted:?} then {command:?}");
    }
    let scope = session_scope("git status", PROJECT);
    let rules = Rules { session: &[&scope], ..Rules::default() };
    assert_eq!(decide("git status", "/elsewhere", rules), Verdict::Ask, "another directory");
}

#[test]
fn a_session_grant_adds_nothing_to_a_destructive_command() {
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
        assert_eq!(after_grant(command, command), Verdict::Ask, "{command}");
    }
    for command in ["git status", "ls -la", "cargo build", "rm file", "python3 x.py", "sh script.sh", "echo sudo"] {
        assert_ne!(session_scope(command, PROJECT), Scope::Call, "{command}");
    }
}

#[test]
fn grants_of_the_start_cover_what_they_name() {
    let (push, status, any) = (pattern("git push *"), pattern("git status"), pattern("./tool *"));
    for (patterns, programs, command, want) in [
        (&[&push][..], &[][..], "git push", Verdict::Run),
        (&[&push], &[], "git push origin 'a b'", Verdict::Run),
        (&[&push, &status], &[], "git status && git push", Verdict::Run),
        (&[&push], &[], "git status && git push", Verdict::Ask),
        (&[&push], &[], "git pushy", Verdict::Ask),
        (&[&push], &[], "git -C x push", Verdict::Ask),
        (&[&push], &[], "git push $X", Verdict::Ask),
        (&[&push], &[], "git push > log", Verdict::Ask),
        (&[&push], &[], "git push > /dev/null 2>&1", Verdict::Run),
        (&[&push], &[], "git push &> /dev/null", Verdict::Run),
        (&[&push], &[], "A=b git push", Verdict::Ask),
        (&[&status], &[], "git status -s", Verdict::Ask),
        (&[&any], &[], "./tool x; ./tool y", Verdict::Run),
        (&[], &["cargo"], "cargo build --release", Verdict::Run),
        (&[], &["cargo"], "cargo run", Verdict::Run),
        (&[], &["cargo"], "cargo publish", Verdict::Ask),
        (&[], &["cargo"], "cargo build && ls", Verdict::Ask),
        (&[], &["cargo", "ls"], "cargo build && ls", Verdict::Run),
        (&[], &["git"], "git push", Verdict::Ask),
        (&[], &["git"], "git -c alias.x='!./x' x", Verdict::Ask),
        (&[], &["timeout"], "timeout 5 sudo id", Verdict::Ask),
        (&[], &["tar"], "tar xf a", Verdict::Ask),
        (&[&push], &["git"], "git push; git status", Verdict::Ask),
        (&[], &["cargo"], "cargo-x", Verdict::Ask),
        (&[], &["cargo"], "/tmp/cargo build", Verdict::Ask),
        (&[], &["eval", "source", "."], "eval ls", Verdict::Ask),
        (&[], &["eval", "source", "."], ". file", Verdict::Ask),
    ] {
        let rules = Rules { patterns, programs, ..Rules::default() };
        assert_eq!(decide(command, PROJECT, rules), want, "{patterns:?} {programs:?} {command}");
        let all = Rules { allows_all: true, ..rules };
        assert_eq!(decide(command, PROJECT, all), Verdict::Run, "{command}");
    }
    for text in ["", "*", "*x", "git pu*", "a; b", "a > b", "A=b c"] {
        assert_eq!(CommandPattern::parse(text), None, "{text:?}");
    }
}

#[test]
fn denied_commands_are_refused_in_every_form() {
    let (push, curl, clean) = (pattern("git push *"), pattern("curl *"), pattern("git clean -fdx"));
    let (deploy, sudo) = (pattern("./deploy.sh *"), pattern("sudo *"));
    for (denied, command, want) in [
        (&push, "git push", Verdict::Refuse),
        (&push, "git push origin", Verdict::Refuse),
        (&push, "ls; git push", Verdict::Refuse),
        (&push, "ls | git push", Verdict::Refuse),
        (&push, "/usr/bin/git push", Verdict::Refuse),
        (&push, "'git' \"push\"", Verdict::Refuse),
        (&push, "gi\\t push", Verdict::Refuse),
        (&push, "git -C sub push", Verdict::Refuse),
        (&push, "git --no-pager -C sub push -f", Verdict::Refuse),
        (&push, "git -c a=b push", Verdict::Refuse),
        (&push, "env A=b git push", Verdict::Refuse),
        (&push, "env -i -u X timeout -k 1 5 nice -n 5 sudo -u me git push", Verdict::Refuse),
        (&push, "A=b git push > log", Verdict::Refuse),
        (&push, "git -C . -C . push", Verdict::Refuse),
        (&push, "git --git-dir .git --work-tree . push", Verdict::Refuse),
        (&push, "git -C . --no-pager push", Verdict::Refuse),
        (&push, "/usr/lib/git-core/git-push origin", Verdict::Refuse),
        (&push, "git -c alias.x=push x", Verdict::AskOrRefuse),
        (&push, "env -S 'git push'", Verdict::AskOrRefuse),
        (&push, "unshare -r git push", Verdict::Refuse),
        (&push, "chroot / git push", Verdict::Refuse),
        (&push, "setpriv --no-new-privs git push", Verdict::Refuse),
        (&push, "systemd-run --user git push", Verdict::Refuse),
        (&push, "su -c 'git push'", Verdict::AskOrRefuse),
        (&push, "runuser -u me --command='git push'", Verdict::AskOrRefuse),
        (&push, "git submodule foreach 'git push'", Verdict::AskOrRefuse),
        (&push, "git rebase -x 'git push' main", Verdict::AskOrRefuse),
        (&push, "git bisect run ./x", Verdict::AskOrRefuse),
        (&push, "jobs -x git push", Verdict::AskOrRefuse),
        (&push, "alias x='git push'", Verdict::AskOrRefuse),
        (&push, "test -v 'a[$(git push)]'", Verdict::AskOrRefuse),
        (&push, "busybox sh -c x", Verdict::AskOrRefuse),
        (&deploy, "./deploy.sh now", Verdict::Refuse),
        (&deploy, "sh ./deploy.sh", Verdict::AskOrRefuse),
        (&sudo, "env sudo ls", Verdict::Refuse),
        (&push, "git status", Verdict::Run),
        (&push, "echo git push", Verdict::Run),
        (&push, "git $X", Verdict::AskOrRefuse),
        (&push, "bash -c 'git push'", Verdict::AskOrRefuse),
        (&push, "sh run.sh", Verdict::AskOrRefuse),
        (&push, "echo push | xargs git", Verdict::AskOrRefuse),
        (&push, "find . -exec git push ;", Verdict::AskOrRefuse),
        (&push, "eval 'git push'", Verdict::AskOrRefuse),
        (&push, "(git push)", Verdict::AskOrRefuse),
        (&push, "if true; then git push; fi", Verdict::AskOrRefuse),
        (&curl, "curl -s http://x", Verdict::Refuse),
        (&curl, "sudo curl", Verdict::Refuse),
        (&curl, "wget x", Verdict::Run),
        (&clean, "git clean -fdx", Verdict::Refuse),
    ] {
        let rules = Rules { allows_all: true, denied: &[denied], ..Rules::default() };
        assert_eq!(decide(command, PROJECT, rules), want, "{denied:?} {command}");
    }
}

#[test]
fn a_line_is_certain_only_if_the_shell_would_run_its_words() {
    for (text, want) in [
        ("a b", Some(vec!["a b"])),
        ("a  'b c' \"d\" e\\ f", Some(vec!["a b c d e f"])),
        ("a; b && c || d | e & f\ng", Some(vec!["a", "b", "c", "d", "e", "f", "g"])),
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
        let words = parsed.map(|line| line.parts.iter().map(|part| part.words.join(" ")).collect::<Vec<_>>());
        assert_eq!(words, want.map(|parts| parts.into_iter().map(str::to_owned).collect()), "{text:?}");
    }
}

#[test]
fn a_long_line_costs_little() {
    for command in ["env ".repeat(5_000), format!("x {}", "-a ".repeat(30_000)), "a;".repeat(40_000)] {
        let verdict = decide(&command, PROJECT, Rules { allows_all: true, ..Rules::default() });
        assert_eq!(verdict, Verdict::Run);
        assert!(matches!(session_scope(&command, PROJECT), Scope::CommandLine { .. }));
    }
}
