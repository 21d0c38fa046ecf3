//! The same programs over the queues of a ConnectX, which is one of software on our end of the
//! wire.

use wirepath_tests::live::preload::{compile, echo, library, segments_received, text, until_it_listens, wire};
use wirepath_tests::live::{NEAR, OURS, Program, THEIRS};

#[test]
fn redis_answers_over_the_queues_of_a_connectx() {
    let test = "redis_answers_over_the_queues_of_a_connectx";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    let Some(wire) = wire(test, &["redis-server", "redis-cli"]) else { return };
    let software = softhca::testing::program().unwrap().to_str().unwrap();
    // The launcher preloads a library too: ours stands in front of it.
    let line = format!(
        "LD_PRELOAD={}:$LD_PRELOAD WIREPATH_INTERFACE=mlx5:{NEAR} WIREPATH_POLICY=refuse \
         exec redis-server --port 6400 --bind 0.0.0.0 --protected-mode no --save ''",
        library().display()
    );
    let redis = Program::start(&wire.near, software, &["run", "--wire", NEAR, "--", "sh", "-c", &line]);
    until_it_listens(&wire, 6_400);
    let before = segments_received(&wire.near);
    let host = OURS.to_string();
    let ask = |words: &[&str]| {
        let arguments = [&["-h", &host, "-p", "6400"], words].concat();
        text(&wire.far.command("redis-cli", &arguments).unwrap()).trim().to_owned()
    };
    assert_eq!(ask(&["set", "price", "101"]), "OK");
    assert_eq!(ask(&["get", "price"]), "101");
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
    drop(redis);
}

#[test]
fn nic_stamps_datagrams_for_a_program_that_asks_for_it() {
    let test = "nic_stamps_datagrams_for_a_program_that_asks_for_it";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "reports.c", directory.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    echo(&wire);
    let software = softhca::testing::program().unwrap().to_str().unwrap();
    let line = format!(
        "LD_PRELOAD={}:$LD_PRELOAD WIREPATH_INTERFACE=mlx5:{NEAR} WIREPATH_POLICY=refuse WIREPATH_TIMESTAMPS=1 \
         exec {program} {THEIRS} 'by the NIC'",
        library().display()
    );
    let said = text(&wire.near.command(software, &["run", "--wire", NEAR, "--", "sh", "-c", &line]).unwrap());
    let stamps: Vec<&str> = said.lines().filter(|line| line.contains("control 1 37 len 64 none none")).collect();
    assert!(stamps.len() == 2 && stamps.iter().all(|line| !line.ends_with("none none none")), "{said}");
}
