//! A primary that is killed under load: the mirror that it has written by RDMA over a wire has all
//! that it sent.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use order_entry::journal::{Entry, Journal, Records, Stamp};
use order_gateway::standby::MirrorPolicy;
use order_gateway::{MappedFile, SyncPolicy};
use wirepath_tests::live::{NEAR, Wire};

use crate::exchange::Running;
use crate::gateway::{Mode, hold_in, start};
use crate::journal::{records, replay};
use crate::kill::{agree, kill_at};

/// A wire whose near end this thread is in, with its children.
fn wire(test: &str) -> Option<Wire> {
    let wire = Wire::new(test)?;
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    wire.near.enter().unwrap();
    Some(wire)
}

/// The whole records at the beginning of a journal.
fn whole(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    let mut records = Records::new(&bytes).unwrap();
    records.by_ref().for_each(drop);
    bytes[..records.end()].to_vec()
}

/// Kills a primary when it has written `more` records while its mirror followed, and compares the
/// mirror with its journal and with the venue.
fn kill_once(wire: &Wire, policy: MirrorPolicy, more: u64, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let (ours, copy) = (directory.path().join("journal"), directory.path().join("copy"));
    let exchange = Running::start(26_641, &[]);
    let mut mirror = hold_in(&wire.far, &copy);
    let primary = start(&exchange, &ours, Mode::Mirrored(policy), seed);
    while records(&copy) < 20 {
        assert!(mirror.try_wait().unwrap().is_none(), "the mirror has ended by itself");
        thread::sleep(Duration::from_millis(1));
    }
    let target = records(&ours) + more;
    kill_at(primary, &ours, target);
    assert!(mirror.wait().unwrap().success(), "it takes over");
    assert!(whole(&ours).starts_with(&whole(&copy)), "the mirror is no beginning of the journal");
    let mut last = start(&exchange, &copy, Mode::Listen, 0);
    assert!(last.wait().unwrap().success());
    let (replayed, venue) = (replay(&copy), exchange.log());
    agree(&replayed, &venue);
    assert_eq!(exchange.stop().trades[0], venue.totals);
}

#[test]
fn mirror_has_all_that_a_killed_primary_sent() {
    let Some(wire) = wire("mirror_has_all_that_a_killed_primary_sent") else { return };
    for (more, seed) in [3, 611, 1].into_iter().zip(1..) {
        kill_once(&wire, MirrorPolicy::BeforeSend, more, seed);
    }
}

/// No packet is lost here, and the WRITE of a record leaves before the order.
#[test]
fn mirror_that_orders_do_not_wait_for_has_all_that_a_killed_primary_sent_over_a_sound_wire() {
    let Some(wire) = wire("mirror_that_orders_do_not_wait_for") else { return };
    kill_once(&wire, MirrorPolicy::Stop, 409, 4);
}

#[test]
#[ignore = "an hour: make soak"]
fn mirror_has_all_that_a_primary_sent_which_is_killed_a_thousand_times() {
    let Some(wire) = wire("mirror_has_all_that_a_primary_sent_which_is_killed_a_thousand_times") else { return };
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for seed in 1..=1_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        kill_once(&wire, MirrorPolicy::BeforeSend, 1 + random % 800, seed);
        println!("killed {seed} times");
    }
}

/// The program's command line, with a venue that does not answer.
fn program(wire: &Wire, is_near: bool, arguments: &[&str]) -> (Child, Receiver<String>) {
    let namespace = if is_near { &wire.near } else { &wire.far };
    let mut child = Command::new("ip")
        .args(["netns", "exec", namespace.name(), env!("CARGO_BIN_EXE_order-gateway")])
        .args(arguments)
        .env("WIREPATH_SHM", env!("CARGO_TARGET_TMPDIR"))
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (sender, said) = mpsc::channel();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    (child, said)
}

fn wait_for(said: &Receiver<String>, words: &str) {
    let mut all = Vec::new();
    loop {
        let line = said.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("no {words:?} in {all:?}"));
        if line.contains(words) {
            return;
        }
        all.push(line);
    }
}

fn config(directory: &Path, name: &str, more: &str) -> String {
    let limits = Path::new(env!("CARGO_MANIFEST_DIR")).join("limits.toml");
    let path = directory.join(name);
    let text = format!(
        "limits = {limits:?}\n[venue]\nprotocol = \"ouch50\"\nprimary = \"127.0.0.1:9\"\nuser = \"A\"\npassword = \"B\"\n\
         firm = \"FIRM\"\ncapacity = \"principal\"\n[journal]\npath = {:?}\nmegabytes = 2\nreserve_megabytes = 1\n{more}",
        directory.join(format!("{name}.journal"))
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Kills a primary whose mirror has this in its configuration and on its command line.
fn replace(test: &str, section: &str, options: &[&str]) {
    let Some(wire) = Wire::new(test) else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let ours = config(directory.path(), "ours", "[mirror]\nvia = \"veth0\"\npolicy = \"stop\"\nlease_ms = 500\n");
    let theirs = config(directory.path(), "theirs", section);
    let holds = [&["mirror", &theirs, "10.9.0.2"], options].concat();
    let (mut mirror, mirror_said) = program(&wire, false, &holds);
    wait_for(&mirror_said, "holds a mirror at rdma://10.9.0.2:9301");
    let (mut primary, primary_said) = program(&wire, true, &["run", &ours, "--mirror", "rdma://10.9.0.2"]);
    wait_for(&primary_said, "a standby follows");
    // The second attempt is two leases later: there was a grant between.
    (0..2).for_each(|_| wait_for(&primary_said, "no connection to 127.0.0.1:9"));
    primary.kill().unwrap();
    primary.wait().unwrap();
    wait_for(&mirror_said, "takes over from its mirror");
    wait_for(&mirror_said, "no connection to 127.0.0.1:9");
    let copy = whole(&directory.path().join("theirs.journal"));
    assert!(copy.starts_with(&whole(&directory.path().join("ours.journal"))), "it goes on behind the primary's end");
    mirror.kill().unwrap();
    mirror.wait().unwrap();
}

#[test]
fn mirror_of_the_command_line_goes_on_in_the_place_of_a_killed_primary() {
    let test = "mirror_of_the_command_line_goes_on_in_the_place_of_a_killed_primary";
    replace(test, "", &["--via", "veth1"]);
}

/// It would dial its own address for ever, or end for the lack of one.
#[test]
fn mirror_with_a_section_of_its_own_goes_on_in_the_place_of_a_killed_primary() {
    let test = "mirror_with_a_section_of_its_own_goes_on";
    for address in ["", "address = \"10.9.0.2:9301\"\n"] {
        replace(test, &format!("[mirror]\nvia = \"veth1\"\n{address}"), &[]);
    }
}

#[test]
fn journal_that_names_a_mirror_is_refused_where_orders_go_on_without_one() {
    let directory = tempfile::tempdir().unwrap();
    let section = "[mirror]\nvia = \"veth0\"\npolicy = \"go-on\"\naddress = \"10.9.0.2:9301\"\n";
    let ours = config(directory.path(), "ours", section);
    let (memory, _) = MappedFile::open(&directory.path().join("ours.journal"), 2 << 20, SyncPolicy::Off).unwrap();
    let (mut journal, named) = (Journal::create(memory, 7, 0, 0).unwrap(), Entry::Standby { id: 7 });
    journal.append(named.kind(), Stamp::default(), &named.encode()).unwrap();
    drop(journal);
    let ended = Command::new(env!("CARGO_BIN_EXE_order-gateway")).args(["run", &ours]).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && said.contains("say `alone`"), "{said}");
}

/// By the policy `stop` records may still be on their way when a person says `handover`.
#[test]
fn mirror_takes_over_with_the_whole_journal_when_it_is_told_to() {
    let Some(wire) = Wire::new("mirror_takes_over_with_the_whole_journal_when_it_is_told_to") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let ours = config(directory.path(), "ours", "[mirror]\nvia = \"veth0\"\npolicy = \"stop\"\n");
    let socket = directory.path().join("ours.sock");
    let text = std::fs::read_to_string(&ours).unwrap();
    std::fs::write(&ours, format!("control = {socket:?}\n{text}")).unwrap();
    let theirs = config(directory.path(), "theirs", "");
    let (mirror, mirror_said) = program(&wire, false, &["mirror", &theirs, "10.9.0.2", "--via", "veth1"]);
    wait_for(&mirror_said, "holds a mirror at rdma://10.9.0.2:9301");
    let (mut primary, said) = program(&wire, true, &["run", &ours, "--mirror", "rdma://10.9.0.2"]);
    wait_for(&said, "a standby follows");
    (0..2).for_each(|_| wait_for(&said, "no connection to 127.0.0.1:9"));
    let tell = |word: &str| {
        let words = ["tell", socket.to_str().unwrap(), word];
        Command::new(env!("CARGO_BIN_EXE_order-gateway")).args(words).output().unwrap()
    };
    // Records that nobody waits for.
    (0..8).for_each(|_| assert!(tell("arm").status.success() && tell("disarm").status.success()));
    assert!(tell("handover").status.success());
    assert!(primary.wait().unwrap().success());
    wait_for(&mirror_said, "takes over from its mirror");
    let copy = whole(&directory.path().join("theirs.journal"));
    assert!(copy.starts_with(&whole(&directory.path().join("ours.journal"))), "it goes on behind the primary's end");
    end(mirror);
}

/// Whoever reaches the port of a mirror does not end it, nor has it take over.
#[test]
fn mirror_obeys_nobody_without_a_queue_pair() {
    let Some(wire) = Wire::new("mirror_obeys_nobody_without_a_queue_pair") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    wire.near.enter().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let theirs = config(directory.path(), "theirs", "");
    let (mirror, said) = program(&wire, false, &["mirror", &theirs, "10.9.0.2", "--via", "veth1"]);
    wait_for(&said, "holds a mirror at rdma://10.9.0.2:9301");
    // Frames without content: that the primary lives and hands over, that it leaves. The last asks
    // for a grant, and its lease is nothing.
    let lease = [&[16, 0, 0, 0, b'R'][..], &[0; 8], &[0; 8]].concat();
    // What is said twice in a row is said once.
    let told = [Some("had asked for no grant"), None, Some("before its queue pair is connected")];
    for (frame, words) in [&[0, 0, 0, 0, b'V', 0, 0, 0, 0, b'T'][..], &[0, 0, 0, 0, b'L'], &lease].into_iter().zip(told)
    {
        let mut stream = TcpStream::connect("10.9.0.2:9301").unwrap();
        stream.write_all(frame).unwrap();
        // It ends the connection, or resets it.
        let _ = stream.read_to_end(&mut Vec::new());
        words.into_iter().for_each(|words| wait_for(&said, words));
    }
    end(mirror);
}

/// A secret in a file that nobody else reads.
fn secret(directory: &Path, text: &str) -> String {
    let path = directory.join(text);
    std::fs::write(&path, format!("{text}\n")).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn mirror_is_written_by_the_primary_that_proves_its_secret() {
    let Some(wire) = Wire::new("mirror_is_written_by_the_primary_that_proves_its_secret") else { return };
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| config(directory.path(), name, ""));
    let [one, another] = ["0123456789abcdef", "fedcba9876543210"].map(|text| secret(directory.path(), text));
    let holds = ["mirror", &theirs, "10.9.0.2", "--via", "veth1", "--secret-file", &one];
    let (mirror, mirror_said) = program(&wire, false, &holds);
    wait_for(&mirror_said, "holds a mirror at rdma://10.9.0.2:9301");
    let run = ["run", &ours, "--via", "veth0", "--mirror", "rdma://10.9.0.2:9301"];
    for (options, words) in [
        (&[][..], "it asks for a secret"),
        // It sees the mirror's proof, or the end of the connection before it.
        (&["--secret-file", &another], "the same `secret_file`"),
        (&["--secret-file", &one], "the mirror's memory is written from now on"),
    ] {
        let (primary, said) = program(&wire, true, &[&run[..], options].concat());
        wait_for(&said, words);
        end(primary);
    }
    end(mirror);
}

/// Kills the mirror of a primary by a policy, and returns the primary and what it says then.
fn without_its_mirror(test: &str, policy: &str) -> Option<(Wire, Child, Receiver<String>)> {
    let wire = Wire::new(test)?;
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| config(directory.path(), name, ""));
    let (mut mirror, mirror_said) = program(&wire, false, &["mirror", &theirs, "10.9.0.2", "--via", "veth1"]);
    wait_for(&mirror_said, "holds a mirror at rdma://10.9.0.2:9301");
    let run = ["run", &ours, "--via", "veth0", "--mirror", "rdma://10.9.0.2:9301", "--mirror-policy", policy];
    let (primary, said) = program(&wire, true, &run);
    wait_for(&said, "the mirror's memory is written from now on");
    mirror.kill().unwrap();
    mirror.wait().unwrap();
    Some((wire, primary, said))
}

fn end(mut primary: Child) {
    primary.kill().unwrap();
    primary.wait().unwrap();
}

#[test]
fn primary_that_has_lost_its_mirror_goes_on_where_its_policy_is_so() {
    let test = "primary_that_has_lost_its_mirror_goes_on_where_its_policy_is_so";
    let Some((_wire, primary, said)) = without_its_mirror(test, "go-on") else { return };
    wait_for(&said, "orders go on without it");
    wait_for(&said, "no connection to 127.0.0.1:9");
    end(primary);
}

#[test]
fn primary_that_has_lost_its_mirror_sends_nothing_where_its_policy_is_so() {
    let test = "primary_that_has_lost_its_mirror_sends_nothing_where_its_policy_is_so";
    for policy in ["stop", "before-send"] {
        let Some((_wire, primary, said)) = without_its_mirror(test, policy) else { return };
        wait_for(&said, "no order leaves without it");
        end(primary);
    }
}
