//! No way to stop a gateway waits for another one: each has a thread of its own.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use order_entry::risk::KillCause;

use super::said::was_killed;
use super::{PATIENCE, Running};

/// Connects, and says something.
fn say(gateway: &Running, words: &str) -> UnixStream {
    let mut stream = UnixStream::connect(gateway.path("socket")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(words.as_bytes()).unwrap();
    stream
}

/// The answer to a word, within the test's patience.
fn answer(gateway: &Running, word: &str) -> String {
    let mut line = String::new();
    BufReader::new(say(gateway, &format!("{word}\n"))).read_line(&mut line).unwrap();
    line
}

/// Nobody ever writes what is read there.
fn pipe_in_place_of_the_limits(gateway: &Running) {
    std::fs::remove_file(gateway.path("limits")).unwrap();
    assert!(Command::new("mkfifo").arg(gateway.path("limits")).status().unwrap().success());
}

#[test]
fn limits_that_cannot_be_read_keep_no_kill_from_being_heard() {
    let gateway = Running::start();
    pipe_in_place_of_the_limits(&gateway);
    gateway.signal("HUP");
    gateway.signal("USR1");
    assert!(was_killed(&gateway, KillCause::Signal));
    std::fs::write(gateway.path("KILL"), "").unwrap();
    assert!(was_killed(&gateway, KillCause::File));
    gateway.wait_for("the file of limits does not answer");
    for _ in 0..2 {
        assert!(answer(&gateway, "reload").contains("refused: the file of limits does not answer"));
    }
    assert_eq!(answer(&gateway, "kill"), "ok\n");
    assert!(was_killed(&gateway, KillCause::Command));
}

/// Who says half a word is cut after a second, so that a kill behind it comes then at the latest.
#[test]
fn who_says_half_a_word_does_not_keep_another_command_from_being_heard() {
    let gateway = Running::start();
    let was_beside = (0..20).any(|_| {
        let mut slow = say(&gateway, "ar");
        assert_eq!(answer(&gateway, "kill"), "ok\n");
        slow.set_nonblocking(true).unwrap();
        slow.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    });
    assert!(was_beside, "each talker was cut before the kill was heard");
}
