//! The same programs over the queues of a ConnectX, which is one of software on our end of the
//! wire.

use wirepath_tests::live::preload::{library, segments_received, text, until_it_listens, wire};
use wirepath_tests::live::{NEAR, OURS, Program};

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
