//! Help output of the binary: the exact text of every command, and rules that every help text
//! follows.
//!
//! The texts are stored in `snapshots/`. After an intended change, run the suite with
//! `INSTA_UPDATE=always` and review the diff.

mod guide;

use std::{collections::BTreeSet, os::unix::ffi::OsStrExt as _, path::Path};

use crate::process::TestHome;

/// Maximum line length of a long help text, in columns.
const COLUMNS: usize = 100;

/// Global options. They do not require an example.
const EVERYWHERE: [&str; 8] = [
    "--home",
    "--config",
    "--url",
    "--json",
    "--color",
    "--verbose",
    "--help",
    "--version",
];

/// Returns the help text of a command, printed with this flag.
fn help(world: &TestHome, args: &[&str], flag: &str) -> String {
    let args = [args, &[flag]].concat();
    let mut command = world.command(&args);
    let output = command
        .env("COLUMNS", COLUMNS.to_string())
        .output()
        .unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(!help.contains('\u{1b}'), "{args:?}");
    help.lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// Returns the lines of a help text below one of these headings.
fn section<'a>(help: &'a str, headings: &[&str]) -> Vec<&'a str> {
    let mut inside = false;
    let lines = help.lines().filter(|line| {
        if !line.starts_with(' ') && !line.is_empty() {
            inside = headings
                .iter()
                .any(|heading| line.strip_suffix(':') == Some(heading));
            return false;
        }
        inside && !line.is_empty()
    });
    lines.collect()
}

/// Returns the subcommands that a help text lists, with their descriptions.
fn listed(help: &str) -> Vec<(&str, &str)> {
    let lines = section(help, &["Commands"]).into_iter();
    lines
        .map(|line| line.trim().split_once(' ').unwrap_or((line.trim(), "")))
        .collect()
}

/// An argument or option in a long help text.
#[derive(Debug)]
struct Explained {
    name: String,
    text: String,
}

/// Returns the arguments and options of a long help text, each with the text below it.
fn explained(help: &str) -> Vec<Explained> {
    let mut found: Vec<Explained> = Vec::new();
    for line in section(help, &["Arguments", "Options", "Options of every command"]) {
        let indent = line.len() - line.trim_start().len();
        if indent < 10 {
            found.push(Explained {
                name: line.trim().to_owned(),
                text: String::new(),
            });
        } else {
            found.last_mut().unwrap().text.push_str(line.trim());
        }
    }
    found
}

/// Returns every visible command except `help`, as a list of words. The empty list is the program
/// itself.
fn commands(world: &TestHome) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    let mut at = 0;
    while let Some(words) = all.get(at).cloned() {
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = help(world, &args, "--help");
        let below = listed(&help)
            .into_iter()
            .filter(|(name, _)| *name != "help");
        all.extend(below.map(|(name, _)| [&words[..], &[name.to_owned()]].concat()));
        at += 1;
    }
    all
}

/// Calls `check` with the words and the long help text of each command.
fn each(world: &TestHome, mut check: impl FnMut(&[&str], &str)) {
    for words in commands(world) {
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        check(&args, &help(world, &args, "--help"));
    }
}

#[test]
fn help_of_every_command_matches_its_snapshot() {
    let world = TestHome::empty();
    let mut names = BTreeSet::new();
    let mut check = |name: String, text: &str| {
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(format!("help_{name}"), text);
        });
        names.insert(format!("help_{name}.snap"));
    };
    check("short".to_owned(), &help(&world, &[], "-h"));
    each(&world, |args, help| {
        check([&["soong"], args].concat().join("_"), help)
    });
    // No snapshot belongs to a command that no longer exists.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cli/snapshots");
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let snapshots: BTreeSet<String> = entries.filter(|name| name.starts_with("help_")).collect();
    assert_eq!(
        snapshots, names,
        "tests/cli/snapshots contains exactly the help of all commands"
    );
}

#[test]
fn help_lists_all_commands_except_the_hidden_one() {
    let world = TestHome::empty();
    let all: Vec<String> = commands(&world)
        .into_iter()
        .map(|words| words.join(" "))
        .collect();
    for name in [
        "demo",
        "run",
        "chat",
        "tree",
        "traces events",
        "traces stop",
        "sessions show",
        "doctor",
        "init",
    ] {
        assert!(
            all.iter().any(|command| command == name),
            "{name} is missing in {all:?}"
        );
    }
    assert!(all.len() > 20, "{all:?}");
    assert!(
        !all.iter().any(|command| command.contains("host")),
        "{all:?}"
    );
    each(&world, |args, help| {
        assert!(
            !help
                .lines()
                .any(|line| line.trim_start().starts_with("host ")),
            "{args:?}\n{help}"
        );
    });
}

#[test]
fn every_command_argument_and_option_has_a_description() {
    let world = TestHome::empty();
    each(&world, |args, help| {
        let first = help.lines().next().unwrap();
        assert!(
            first.chars().next().is_some_and(char::is_uppercase),
            "{args:?} has no description:\n{help}"
        );
        for (name, text) in listed(help) {
            assert!(
                !text.trim().is_empty(),
                "{args:?} says nothing about its command {name}"
            );
        }
        let explained = explained(help);
        for name in EVERYWHERE {
            assert!(
                explained.iter().any(|option| option.name.contains(name)),
                "{args:?} does not say {name}:\n{help}"
            );
        }
        for Explained { name, text } in explained {
            let is_text = text.chars().next().is_some_and(char::is_uppercase) && text.len() > 7;
            assert!(is_text, "{args:?} says too little about {name}: {text:?}");
        }
    });
}

#[test]
fn commands_with_arguments_show_an_example_of_themselves() {
    let world = TestHome::empty();
    each(&world, |args, help| {
        let own = explained(help)
            .into_iter()
            .filter(|option| !EVERYWHERE.iter().any(|name| option.name.contains(name)));
        let takes: Vec<String> = own.map(|option| option.name).collect();
        let mut lines = help
            .lines()
            .skip_while(|line| !line.starts_with("Examples"))
            .skip(1);
        let command = [&["soong"], args].concat().join(" ");
        let has_example = lines
            .by_ref()
            .take_while(|line| line.starts_with(' '))
            .any(|line| line.contains(&command));
        assert!(
            has_example || takes.is_empty(),
            "`{command}` takes {takes:?}, and shows no example:\n{help}"
        );
    });
}

#[test]
fn long_help_fits_in_100_columns() {
    let world = TestHome::empty();
    each(&world, |args, help| {
        let long: Vec<&str> = help
            .lines()
            .filter(|line| line.chars().count() > COLUMNS)
            .collect();
        assert!(
            long.is_empty(),
            "{args:?}: more than {COLUMNS} columns: {long:#?}"
        );
    });
}

#[test]
fn help_command_and_help_flag_print_the_same() {
    let world = TestHome::empty();
    for (arguments, same) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "run"], &["run", "--help"]),
        // A page of the guide has that name as well.
        (&["help", "monitor"], &["monitor", "--help"]),
        (&["help", "quickstart"], &["guide", "quickstart"]),
        (
            &["help", "traces", "events"],
            &["traces", "events", "--help"],
        ),
        (
            &["traces", "help", "events"],
            &["traces", "events", "--help"],
        ),
    ] {
        assert_eq!(
            world.run(arguments).expect_code(0).out,
            world.run(same).expect_code(0).out,
            "{arguments:?}"
        );
    }
    for unknown in [&["help", "nothing"][..], &["guide", "nothing"]] {
        world.run(unknown).expect_code(2);
    }
    let mut unreadable = world.command(&["run"]);
    let unreadable = unreadable
        .arg(std::ffi::OsStr::from_bytes(b"\xff"))
        .output()
        .unwrap();
    assert_eq!(
        unreadable.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&unreadable.stderr)
    );
    // Without a subcommand, the help is printed as an error.
    for args in [
        &[][..],
        &["traces"],
        &["sessions"],
        &["config"],
        &["presets"],
        &["tools"],
        &["models"],
    ] {
        let ran = world.run(args).expect_code(2);
        assert!(
            ran.out.is_empty() && ran.err.contains("Usage: soong"),
            "{args:?}: {}",
            ran.err
        );
    }
    assert_eq!(
        world.run(&["--version"]).expect_code(0).out,
        concat!("soong ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn help_lists_exit_codes_and_environment_variables() {
    let world = TestHome::empty();
    let manual = help(&world, &[], "--help");
    let codes: Vec<&str> = section(&manual, &["Exit codes"])
        .into_iter()
        .filter_map(|line| {
            line.trim()
                .split_once("  ")
                .filter(|_| !line.starts_with("   "))
                .map(|(code, _)| code)
        })
        .collect();
    assert_eq!(
        codes,
        ["0", "1", "2", "3", "4", "5", "6", "101", "130"],
        "{manual}"
    );
    for variable in [
        "SOONG_AGENT_HOME",
        "SOONG_TOKEN",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "NO_COLOR",
    ] {
        let environment = section(&manual, &["Environment"]);
        assert!(
            environment
                .iter()
                .any(|line| line.trim().starts_with(variable)),
            "{variable}: {environment:#?}"
        );
    }
}

#[test]
fn guide_names_every_command_and_option() {
    let world = TestHome::empty();
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("guide/cli.md"))
        .unwrap();
    each(&world, |args, help| {
        assert!(
            page.contains(&args.join(" ")),
            "cli.md does not name `soong {}`",
            args.join(" ")
        );
        let own = explained(help).into_iter().map(|option| option.name);
        let own = own.filter(|name| {
            name.starts_with('-') && !EVERYWHERE.iter().any(|other| name.contains(other))
        });
        for option in own {
            let long = option
                .split([' ', ',', '['])
                .find(|word| word.starts_with("--"))
                .unwrap();
            assert!(
                page.contains(long),
                "cli.md does not name {long} of `soong {}`",
                args.join(" ")
            );
        }
    });
}
