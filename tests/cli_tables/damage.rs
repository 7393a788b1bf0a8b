//! Databases that cannot be served: commands name the file, say what to do, and leave it as it is (DUR-5).

use crate::{
    failures::{check, row},
    process::World,
};

#[test]
fn a_database_that_cannot_be_served_is_named_and_left_as_it_is() {
    let world = World::new();
    world.demo(&[]);
    let path = world.home().join("sessions.sqlite");
    let sound = std::fs::read(&path).unwrap();
    let newer = [&sound[..60], &99_u32.to_be_bytes(), &sound[64..]].concat();
    let behind = sound.len() / 2 / 4096 * 4096;
    // Behind the schema: it is met by whoever reads there.
    let damaged = [&sound[..behind], &vec![0xa5; sound.len() - behind]].concat();
    let named = format!("{} is damaged", path.display());
    let lines = ["tree", "run --model offline x", "run --model offline --detach x"];
    for (bytes, lines, what) in
        [(&newer, &lines[..], "the database has format 99"), (&damaged, &["traces list"], &named)]
    {
        std::fs::write(&path, bytes).unwrap();
        for line in lines {
            let advice = if line.contains("--detach") { "host.log" } else { "soong doctor" };
            check(&world, &[], &[row(line, 1, what, advice)]);
        }
        assert!(std::fs::read(&path).unwrap() == *bytes, "{what}: nothing is changed");
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let what = "sessions.sqlite is a folder and no database: move it away";
    check(&world, &[], &["tree", "run --model offline x"].map(|line| row(line, 1, what, "soong doctor")));
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
}
