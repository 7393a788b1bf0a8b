//! TOOL-5: what a confined command cannot read, write or reach. If the kernel cannot confine
//! commands, the tests print a message and are skipped.

use super::*;

/// Makes a world, or prints why the test is skipped.
fn confined_test() -> Option<BashTest> {
    match confinement().missing() {
        None => Some(BashTest::new()),
        Some(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

#[tokio::test]
async fn confined_command_writes_only_to_its_project() {
    let Some(world) = confined_test() else { return };
    let outside = tempfile::tempdir().unwrap();
    let outside = outside.path().canonicalize().unwrap();
    fs::write(outside.join("there"), "untouched").unwrap();
    let out = outside.to_str().unwrap();
    let user = world.user.path().to_str().unwrap();
    for command in [
        "echo x > made && mkdir -p a/b && mv made a/b && cp a/b/made . && ln made linked && ln -s made symlink && rm -r a",
        "mkfifo pipe && echo x > $TMPDIR/x && mv $TMPDIR/x moved && test -f moved",
        "echo x > /dev/null && cat /etc/passwd > copy && truncate -s 1 copy",
        "cat < <(echo x) && cat <<< here && echo x | tee /dev/stderr",
    ] {
        let shown = world.ok(command).await;
        assert!(shown.ends_with("[exit status 0]"), "{command}: {shown}");
    }
    for command in [
        "echo x > OUT/made".to_owned(),
        "echo x > OUT/there".to_owned(),
        "echo x >> OUT/there".to_owned(),
        "truncate -s 0 OUT/there".to_owned(),
        "rm OUT/there".to_owned(),
        "mkdir OUT/folder".to_owned(),
        "mv OUT/there .".to_owned(),
        "touch made; mv made OUT/made".to_owned(),
        "ln OUT/there hard && echo x > hard".to_owned(),
        "ln -s OUT/there soft && echo x > soft".to_owned(),
        "ln -s OUT dir && echo x > dir/made".to_owned(),
        "mkfifo OUT/pipe".to_owned(),
        "echo x > USER/.plain".to_owned(),
        "echo x > USER/.bashrc".to_owned(),
        "echo x > /tmp/made-by-a-test".to_owned(),
        "echo x > /dev/made-by-a-test".to_owned(),
        "mknod device c 1 3".to_owned(),
        "cd OUT && echo x > made".to_owned(),
        "setsid --wait sh -c 'echo x > OUT/made'".to_owned(),
        "env -i sh -c 'echo x > OUT/made'".to_owned(),
        "echo x > /proc/sys/kernel/hostname".to_owned(),
        "mount -t tmpfs none OUT".to_owned(),
    ] {
        let command = command.replace("OUT", out).replace("USER", user);
        let shown = world.ok(&command).await;
        assert!(!shown.contains("[exit status 0]"), "{command}: {shown}");
    }
    assert_eq!(
        fs::read_to_string(outside.join("there")).unwrap(),
        "untouched"
    );
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(
        fs::read_to_string(world.user.path().join(".plain")).unwrap(),
        "p"
    );
}

#[tokio::test]
async fn confined_command_cannot_read_home_or_sensitive_folders() {
    let Some(world) = confined_test() else { return };
    let user = world.user.path().canonicalize().unwrap();
    let own = std::process::id();
    for command in [
        "cat USER/.soong-agent/home.db".to_owned(),
        "cat ~/.ssh/id_rsa".to_owned(),
        "ln -s USER/.ssh link; cat link/id_rsa".to_owned(),
        "ln USER/.ssh/id_rsa hard && cat hard".to_owned(),
        "cp -r USER/.ssh copy && cat copy/id_rsa".to_owned(),
        "mv USER/.ssh/id_rsa moved && cat moved".to_owned(),
        "mv USER/.ssh here && cat here/id_rsa".to_owned(),
        "cat /proc/self/root/USER/.ssh/id_rsa".to_owned(),
        format!("cat /proc/{own}/root/USER/.ssh/id_rsa"),
        "cd USER/.ssh; cat id_rsa".to_owned(),
    ] {
        let command = command.replace("USER", user.to_str().unwrap());
        let shown = world.ok(&command).await;
        assert!(
            !shown.contains("of the user") && !shown.contains("of the runtime"),
            "{command}: {shown}"
        );
        assert!(!shown.contains("[exit status 0]"), "{command}: {shown}");
    }
    let shown = world
        .ok("cat ~/.plain && ls / > /dev/null && ls ~ > /dev/null && ls /usr/bin > /dev/null")
        .await;
    assert_eq!(shown, "p[exit status 0]".replace("p[", "p\n["));
}

#[tokio::test]
async fn confined_command_cannot_inspect_or_kill_other_processes() {
    let Some(world) = confined_test() else { return };
    let bystander = std::process::Command::new("sleep")
        .arg("1000")
        .env("KEY", "of a bystander")
        .spawn();
    let mut bystander = KilledOnDrop(bystander.unwrap());
    for (pid, name) in [
        (std::process::id(), "ourselves"),
        (bystander.0.id(), "a bystander"),
    ] {
        for what in ["environ", "maps", "fd/0", "root/etc/hostname", "mem"] {
            let shown = world.ok(&format!("head -c 10 /proc/{pid}/{what}")).await;
            assert!(shown.contains("denied"), "{name}, {what}: {shown}");
        }
    }
    let shown = world.ok(&format!("kill -9 {}", bystander.0.id())).await;
    assert!(
        shown.contains("not permitted") && shown.ends_with("[exit status 1]"),
        "{shown}"
    );
    assert!(bystander.0.try_wait().unwrap().is_none());
}

#[tokio::test]
async fn confined_command_has_private_devices() {
    let Some(world) = confined_test() else { return };
    let shown = world.ok("ls /dev | tr '\\n' ' '").await;
    let want =
        "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero \n[exit status 0]";
    assert_eq!(shown, want);
    for command in [
        "echo x > /dev/null && echo x > /dev/zero && head -c 4 /dev/urandom > random && test -s random",
        "! echo x > /dev/full",
        "echo x | cat /dev/stdin > /dev/stdout && cat <(echo x)",
        "echo x > /dev/shm/made-by-a-test && cat /dev/shm/made-by-a-test && ! ls /dev/shm | grep -v made-by-a-test",
        "script -qec 'tty | grep -q /dev/pts/ && echo a terminal' /dev/null || ! command -v script",
    ] {
        let shown = world.ok(command).await;
        assert!(shown.ends_with("[exit status 0]"), "{command}: {shown}");
    }
    assert!(
        !std::path::Path::new("/dev/shm/made-by-a-test").exists(),
        "its shared memory is its own"
    );
    let shown = world.ok("ls /dev/shm; ls /dev/pts").await;
    assert_eq!(shown, "ptmx\n[exit status 0]", "each command has its own");
    // Devices of the machine, accessed in several ways.
    for command in [
        "head -c 1 /dev/vcs1",
        "cat /proc/1/root/dev/kvm",
        "mknod node c 1 5 && head -c 1 node",
        "cat /proc/self/root/dev/kmsg",
        "rm /dev/null",
        "mv /dev/zero /dev/null",
        "dd if=/dev/zero of=/dev/shm/x bs=1M count=100000 2>/dev/null",
    ] {
        let shown = world.ok(command).await;
        assert!(!shown.ends_with("[exit status 0]"), "{command}: {shown}");
    }
}

#[tokio::test]
async fn confined_command_cannot_read_sensitive_files() {
    let Some(world) = confined_test() else { return };
    for name in [
        ".netrc",
        ".npmrc",
        ".bash_history",
        ".cargo/credentials.toml",
    ] {
        let path = world.user.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "of the user").unwrap();
        let path = path.canonicalize().unwrap();
        for command in [
            format!("cat ~/{name}"),
            format!("cp {} copy && cat copy", path.display()),
        ] {
            let shown = world.ok(&command).await;
            assert!(!shown.contains("of the user"), "{command}: {shown}");
        }
        let shown = world
            .ok(&format!(
                "echo x > ~/{name}; ln ~/{name} hard; mv ~/{name} moved; cat hard moved"
            ))
            .await;
        assert!(!shown.contains("of the user"), "{name}: {shown}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "of the user", "{name}");
    }
    // A file of the project stays readable, because a command may need it.
    world.project.write(".env", b"of the project");
    assert!(world.ok("cat .env").await.contains("of the project"));
}

#[tokio::test]
async fn commands_in_the_home_cannot_change_startup_files() {
    let Some(world) = confined_test() else { return };
    let user = world.user.path().canonicalize().unwrap();
    fs::write(user.join(".bashrc"), "of the user").unwrap();
    fs::create_dir_all(user.join(".config/other")).unwrap();
    fs::create_dir_all(user.join("work")).unwrap();
    let mut context = world.project.context();
    context.project_dir = user.clone().into();
    let call = async |command: &str| {
        world
            .bash
            .call(context.clone(), json!({ "command": command }))
            .await
            .unwrap()
            .output
    };
    for command in [
        "echo x >> .bashrc",
        "mv .bashrc moved",
        "rm .bashrc",
        "chmod 777 .bashrc",
        "echo x > .profile",
        "mkdir -p .config/autostart && echo x > .config/autostart/x.desktop",
        "mkdir -p .local/bin && echo x > .local/bin/ls",
    ] {
        let shown = call(command).await;
        assert!(!shown.contains("[exit status 0]"), "{command}: {shown}");
    }
    assert_eq!(
        fs::read_to_string(user.join(".bashrc")).unwrap(),
        "of the user"
    );
    let shown = call("cat .bashrc && echo x > work/made && echo x > .config/other/made").await;
    assert_eq!(shown, "of the user[exit status 0]".replace("r[", "r\n["));
}

#[tokio::test]
async fn package_caches_are_separate_per_project() {
    let Some(world) = confined_test() else { return };
    for variable in [
        "CARGO_HOME",
        "npm_config_cache",
        "PIP_CACHE_DIR",
        "GOMODCACHE",
        "GOCACHE",
    ] {
        let shown = world
            .ok(&format!(
                "echo $SOONG_CALL > ${variable}/made && cat ${variable}/made"
            ))
            .await;
        assert!(shown.ends_with("[exit status 0]"), "{variable}: {shown}");
    }
    assert!(
        world
            .ok("cat $CARGO_HOME/made")
            .await
            .ends_with("[exit status 0]"),
        "it is there for the next command"
    );
    let other = TestProject::new(&[]);
    let shown = other
        .call(&world.bash, json!({ "command": "cat $CARGO_HOME/made" }))
        .await
        .unwrap();
    assert!(shown.contains("No such file"), "{shown}");
    let user = world.user.path().canonicalize().unwrap();
    let shown = world
        .ok(&format!(
            "ls {}/.soong-agent/caches/*/cargo/made",
            user.display()
        ))
        .await;
    assert_eq!(shown.matches("made").count(), 1, "{shown}");
    let shown = world.ok("cat $CARGO_HOME/../../../home.db").await;
    assert!(
        shown.contains("denied"),
        "the rest of the home stays hidden: {shown}"
    );
    let tools = ToolsConfig {
        bash: BashConfig {
            cache: PackageCache::Off,
            writable: vec!["~/more".to_owned()],
            ..BashConfig::default()
        },
        ..ToolsConfig::default()
    };
    let world = BashTest::with(tools);
    fs::create_dir(world.user.path().join("more")).unwrap();
    let world = BashTest {
        bash: bash(&world.bash.setting.tool_environment),
        ..world
    };
    assert_eq!(
        world
            .ok("echo x > ~/more/made; echo ${CARGO_HOME-none}")
            .await,
        "none\n[exit status 0]"
    );
}

#[tokio::test]
async fn commands_cannot_access_keyrings_or_limits_of_others() {
    let Some(world) = confined_test() else { return };
    let owner = std::process::id();
    for limits in ["--core=unlimited", "--cpu=1:", "--nofile"] {
        let shown = world.ok(&format!("prlimit --pid {owner} {limits}")).await;
        assert!(shown.contains("not permitted"), "{limits}: {shown}");
    }
    let shown = world.ok("ulimit -n 64 && ulimit -n").await;
    assert_eq!(shown, "64\n[exit status 0]", "its own limits are its own");
    if cfg!(target_arch = "x86_64") {
        // keyctl(KEYCTL_JOIN_SESSION_KEYRING), keyctl(KEYCTL_LINK, user, session), add_key,
        // request_key.
        for call in [
            "250, 1, 0",
            "250, 8, -4, -3",
            "248, 0, 0, 0, 0, -3",
            "249, 0, 0, 0, -3",
        ] {
            let shown = world
                .ok(&format!("perl -e 'syscall({call}) == -1 and print \"$!\"'"))
                .await;
            assert!(
                shown.contains("not implemented") || shown.contains("not found"),
                "{call}: {shown}"
            );
        }
    }
}

#[tokio::test]
async fn write_roots_are_writable_and_home_in_project_is_not() {
    if confined_test().is_none() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let roots = vec![
        root.path().to_str().unwrap().to_owned(),
        "~/cache".to_owned(),
    ];
    let mut world = BashTest::with(ToolsConfig {
        allowed_write_roots: roots,
        ..ToolsConfig::default()
    });
    fs::create_dir(world.user.path().join("cache")).unwrap();
    let shown = world
        .ok(&format!(
            "echo x > {}/made && echo x > ~/cache/made",
            root.path().display()
        ))
        .await;
    assert_eq!(shown, "[exit status 0]");
    // A runtime home inside the project.
    world
        .project
        .write(".soong-agent/home.db", b"of the runtime");
    world.project.write("src/a", b"a");
    let mut tool_environment = world.bash.setting.tool_environment.clone();
    tool_environment.home = Some(world.project.path().join(".soong-agent"));
    world.bash = bash(&tool_environment);
    for (command, is_done) in [
        ("cat src/a && echo b > src/b && ls", true),
        ("cat .soong-agent/home.db", false),
        ("echo x > .soong-agent/home.db", false),
        ("rm .soong-agent/home.db", false),
        ("mv .soong-agent src", false),
    ] {
        let shown = world.ok(command).await;
        assert_eq!(
            shown.ends_with("[exit status 0]"),
            is_done,
            "{command}: {shown}"
        );
    }
    assert_eq!(
        fs::read(world.project.path().join(".soong-agent/home.db")).unwrap(),
        b"of the runtime"
    );
}

#[tokio::test]
async fn confined_command_cannot_change_metadata_outside() {
    let Some(mut world) = confined_test() else {
        return;
    };
    let outside = tempfile::tempdir().unwrap();
    let outside = outside.path().canonicalize().unwrap();
    fs::write(outside.join("there"), "untouched").unwrap();
    // A runtime home inside the project, which is not accessible either.
    world.project.write("src/a", b"a");
    world
        .project
        .write(".soong-agent/home.db", b"of the runtime");
    let mut tool_environment = world.bash.setting.tool_environment.clone();
    tool_environment.home = Some(world.project.path().join(".soong-agent"));
    world.bash = bash(&tool_environment);
    let state = |path: &std::path::Path| {
        use std::os::unix::fs::MetadataExt;
        let known = path.metadata().unwrap();
        (
            known.mode(),
            known.uid(),
            known.gid(),
            known.mtime(),
            known.mtime_nsec(),
            known.ctime(),
            known.ctime_nsec(),
        )
    };
    for what in [
        outside.clone(),
        outside.join("there"),
        world.project.path().join(".soong-agent/home.db"),
    ] {
        let before = state(&what);
        for command in [
            "chmod 777 WHAT",
            "chmod 000 WHAT",
            "touch -d '2001-01-01' WHAT",
            "touch -a WHAT",
            "chown 12345 WHAT",
            "chgrp 12345 WHAT",
            "ln -s WHAT link && chmod 700 link/. || chmod 700 link",
            "cd / && chmod 777 WHAT",
            "mount -o remount,bind,rw / && chmod 777 WHAT",
            "unshare -Urm sh -c 'mount -o remount,bind,rw /; mount --bind / /mnt; chmod 777 WHAT; chmod 777 /mnt/WHAT'",
            "unshare -Ur sh -c 'mount -o remount,bind,rw /; umount -l WHAT; chmod 777 WHAT'",
            "nsenter -t PID -m chmod 777 WHAT",
            "nsenter -t PID -U -m chmod 777 WHAT",
            "chmod 777 /proc/PID/root/WHAT",
        ] {
            let pid = std::process::id().to_string();
            let command = command
                .replace("PID", &pid)
                .replace("WHAT", what.to_str().unwrap());
            let shown = world.ok(&command).await;
            assert!(!shown.contains("[exit status 0]"), "{command}: {shown}");
            assert_eq!(state(&what), before, "{command}: {shown}");
        }
    }
    for command in [
        "chmod 755 src/a && touch -d 2001-01-01 src/a && test -x src/a",
        "cp -p src/a src/b && test -x src/b && ! test src/b -nt src/a",
        "cd src && mkdir c && chmod 700 c && mv a c && mv c/a $TMPDIR && mv $TMPDIR/a . && chmod 700 $TMPDIR",
        "cd src && echo b > e && rm e && pwd -P | grep -q src$",
        "cd src && tar cf a.tar c b && tar xpf a.tar && rm -r a.tar c",
    ] {
        let shown = world.ok(command).await;
        assert!(shown.ends_with("[exit status 0]"), "{command}: {shown}");
    }
}

#[tokio::test]
async fn write_root_replaced_by_symlink_is_not_followed() {
    if confined_test().is_none() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let outside = outside.path().canonicalize().unwrap();
    let project = TestProject::new(&[("shared/cache/x", "x")]);
    let roots = ["shared", "shared/cache"]
        .map(|name| project.path().join(name).to_str().unwrap().to_owned());
    let other = TestProject::new(&[]);
    let world = BashTest::with(ToolsConfig {
        allowed_write_roots: roots.to_vec(),
        ..ToolsConfig::default()
    });
    let call = async |command: String| {
        other
            .call(&world.bash, json!({ "command": command }))
            .await
            .unwrap()
    };
    let shared = project.path().join("shared").to_str().unwrap().to_owned();
    let swapped = call(format!(
        "cd {shared} && mv cache old && ln -s {} cache",
        outside.display()
    ))
    .await;
    assert!(swapped.ends_with("[exit status 0]"), "{swapped}");
    let shown = call(format!(
        "echo x > {shared}/cache/made; echo x > {}/made",
        outside.display()
    ))
    .await;
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{shown}");
}

#[tokio::test]
async fn project_replaced_by_symlink_is_rejected() {
    if confined_test().is_none() {
        return;
    }
    let world = BashTest::new();
    let outside = tempfile::tempdir().unwrap();
    let link = world.user.path().canonicalize().unwrap().join("project");
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    let mut context = world.project.context();
    context.project_dir = link.into();
    let error = world
        .bash
        .call(context, json!({ "command": "echo x > made" }))
        .await
        .unwrap_err();
    assert!(
        error.message.contains("a symlink leads there"),
        "{}",
        error.message
    );
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}
