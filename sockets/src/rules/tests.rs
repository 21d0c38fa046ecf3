//! Both grammars, their errors, and texts that are not rules.

use proptest::prelude::*;

use super::*;

const NO_ADDRESS: &str = "0.0.0.0:0";

fn rules(text: &str) -> Rules {
    Rules::parse("f", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The decision and its reason for a socket of `program` (`name` or `name#id`).
fn decide<'r>(rules: &'r Rules, program: &str, traffic: Traffic, local: &str, remote: &str) -> (Role, &'r str) {
    let (program, id) = program.split_once('#').map_or((program, None), |(name, id)| (name, Some(id)));
    let remote = (!remote.is_empty()).then(|| remote.parse().unwrap());
    let query = Query { program, application_id: id, traffic, local: local.parse().unwrap(), remote };
    let Decision { role, why } = rules.role(&query);
    (role, why)
}

fn server(rules: &Rules, program: &str, local: &str) -> Role {
    decide(rules, program, Traffic::TcpServer, local, "").0
}

fn client(rules: &Rules, program: &str, remote: &str, local: &str) -> Role {
    decide(rules, program, Traffic::TcpClient, local, remote).0
}

#[test]
fn dns_is_the_kernels_by_default_and_the_rest_is_ours() {
    let rules = Rules::default();
    let check = |traffic, remote, expected: (Role, &str)| {
        assert_eq!(decide(&rules, "p", traffic, NO_ADDRESS, remote), expected);
    };
    check(Traffic::UdpConnect, "192.0.2.1:53", (Role::Os, "DNS is the kernel's"));
    check(Traffic::UdpSender, "192.0.2.1:53", (Role::Os, "DNS is the kernel's"));
    check(Traffic::TcpClient, "192.0.2.1:53", (Role::Offload, "no rule fits"));
    check(Traffic::UdpConnect, "192.0.2.1:54", (Role::Offload, "no rule fits"));
    check(Traffic::UdpReceiver, "", (Role::Offload, "no rule fits"));
}

/// The examples at the end of libvma.conf, and the file's own default rule.
#[test]
fn examples_of_libvma_conf_decide_as_it_says() {
    let rules = rules(
        "# comment\n\napplication-id tcp_lat\tB1\nuse vma       tcp_client 192.168.1.0/24:*:*:*\n\
         use os     tcp_server   *:5001\n\napplication-id * *\nuse os udp_connect *:53\n",
    );
    assert_eq!(server(&rules, "tcp_lat#B1", "0.0.0.0:5001"), Role::Os);
    assert_eq!(server(&rules, "tcp_lat#B1", "0.0.0.0:5002"), Role::Offload);
    assert_eq!(client(&rules, "tcp_lat#B1", "192.168.1.7:80", NO_ADDRESS), Role::Offload);
    // No rule matches there, so the socket is offloaded: the next section is not consulted.
    let dns = |program| decide(&rules, program, Traffic::UdpConnect, NO_ADDRESS, "192.0.2.1:53");
    assert_eq!(dns("tcp_lat#B1"), (Role::Offload, "no line of f fits"));
    assert_eq!(dns("tcp_lat"), (Role::Os, "line 8 of f"));
    assert_eq!(dns("tcp_lat#B2"), (Role::Os, "line 8 of f"));
    // Without the id the first section is not the program's.
    assert_eq!(server(&rules, "tcp_lat", "0.0.0.0:5001"), Role::Offload);
    // An id of * is every application.
    assert_eq!(server(&rules, "tcp_lat#*", "0.0.0.0:5001"), Role::Os);
}

#[test]
fn libxlio_conf_is_a_libvma_conf_with_another_name_for_ours() {
    let rules = rules("use xlio tcp_server *:80\nuse os tcp_server *:80-90\n");
    assert_eq!(server(&rules, "p", "0.0.0.0:80"), Role::Offload);
    assert_eq!(server(&rules, "p", "0.0.0.0:81"), Role::Os);
}

#[test]
fn names_of_programs_have_the_wildcards_of_ls() {
    let rules = rules("application-id db2* *\nuse os tcp_server *:*\napplication-id t?cp *\nuse os tcp_client *:*\n");
    assert_eq!(server(&rules, "db2", "192.0.2.1:1"), Role::Os);
    assert_eq!(server(&rules, "db2sync", "192.0.2.1:1"), Role::Os);
    assert_eq!(server(&rules, "ttcp", "192.0.2.1:1"), Role::Offload);
    assert_eq!(client(&rules, "ttcp", "192.0.2.1:1", NO_ADDRESS), Role::Os);
    assert_eq!(client(&rules, "other", "192.0.2.1:1", NO_ADDRESS), Role::Offload);
}

#[test]
fn first_line_of_libvma_that_fits_the_role_wins() {
    let rules = rules(
        "use vma tcp_server 10.0.0.5:80\nuse os tcp_server 10.0.0.0/8:80-90\nuse vma tcp_server *:85\nuse * tcp_server *:91\n\
         use sdp tcp_server *:92\nuse os tcp_server *:91-92\n",
    );
    let check = |local, expected| assert_eq!(server(&rules, "p", local), expected, "{local}");
    check("10.0.0.5:80", Role::Offload);
    check("10.0.0.6:80", Role::Os);
    check("10.9.9.9:85", Role::Os);
    check("11.0.0.1:85", Role::Offload);
    check("10.0.0.1:91", Role::Offload);
    // VMA has no SDP: the line fits nothing.
    check("10.0.0.1:92", Role::Os);
    assert_eq!(client(&rules, "p", "10.0.0.6:80", NO_ADDRESS), Role::Offload);
}

#[test]
fn clients_of_libvma_name_the_peer_first_and_themselves_second() {
    let rules =
        rules("use os tcp_client 192.0.2.0/24:80:10.0.0.0/8:1000-2000\nuse os udp_sender 239.1.1.1:7:1.2.3.4:9\n");
    assert_eq!(client(&rules, "p", "192.0.2.9:80", "10.1.1.1:1500"), Role::Os);
    assert_eq!(client(&rules, "p", "192.0.2.9:80", "10.1.1.1:2001"), Role::Offload);
    assert_eq!(client(&rules, "p", "10.1.1.1:1500", "192.0.2.9:80"), Role::Offload);
    // VMA matches a sender by its peer alone.
    assert_eq!(decide(&rules, "p", Traffic::UdpSender, "5.5.5.5:5", "239.1.1.1:7").0, Role::Os);
}

#[test]
fn receivers_of_libvma_name_the_group() {
    let rules = rules("use os udp_receiver 239.0.0.0/8:*\n");
    assert_eq!(decide(&rules, "p", Traffic::UdpReceiver, "239.9.9.9:5", "").0, Role::Os);
    assert_eq!(decide(&rules, "p", Traffic::UdpReceiver, "0.0.0.0:5", "").0, Role::Offload);
}

#[test]
fn statements_of_libvma_end_where_the_next_begins() {
    let rules = rules(
        "log destination stderr min-level 9 use os tcp_server 1 . 2 . 3 . 4 : 5 application-id x * use vma tcp_server *:*\r\n\
         log destination yfile /var/log/vma.log\nlog destination file /a#b\nlog\napplication-id * *\nuse os tcp_server *:6",
    );
    assert_eq!(server(&rules, "y", "1.2.3.4:5"), Role::Os);
    // The first section goes on where it is named again.
    assert_eq!(server(&rules, "x", "9.9.9.9:6"), Role::Os);
}

#[test]
fn libvma_conf_and_toml_are_told_apart_by_their_first_word() {
    for text in ["application-id * *", "# x\n\n  use os tcp_server *:1", "log min-level 1", "use"] {
        assert!(vma::is_libvma(text), "{text}");
    }
    for text in ["", "# x", "default = \"os\"", "[[rules]]", "use = 1", "use.x = 1", "user = 1", "logs"] {
        assert!(!vma::is_libvma(text), "{text}");
    }
}

/// `text` is refused at this place, in words that contain `says`.
fn refused(text: &str, line: usize, column: usize, says: &str) {
    let error = Rules::parse("dir/bad", text).map(drop).expect_err(text).to_string();
    let place = format!("dir/bad line {line}, column {column}: ");
    assert!(
        error.starts_with(&place) && error.contains(says) && !error.contains('\n'),
        "{text}\n{error}\n{place}{says}"
    );
}

#[test]
fn errors_of_libvma_say_where_and_what_was_expected() {
    refused("use linux tcp_server *:1", 1, 5, "expected vma, xlio or os, and found \"linux\"");
    refused("use os tcp-server *:1", 1, 8, "tcp_server, tcp_client");
    refused("use os tcp_server", 1, 18, "expected an IPv4 address, or *, and the line ends");
    refused("use os tcp_server 1.2.3:1", 1, 24, "the next number");
    refused("use os tcp_server 1.2.3.256:1", 1, 25, "0 to 255");
    refused("use os tcp_server 1.2.3.4/33:1", 1, 27, "0 to 32");
    refused("use os tcp_server *:65536", 1, 21, "a port");
    refused("use os tcp_server *:9-8", 1, 23, "a last port of 9 or more");
    refused("use os tcp_server *:007", 1, 22, "application-id, use or log");
    refused("application-id x\nuse os tcp_server *:1", 1, 17, "the id of an application");
    refused("use os tcp_server *:1\n\n  aplication-id x y\n", 3, 3, "application-id, use or log");
    refused("log destination printer", 1, 17, "stderr, syslog or file");
    refused("log min-level 10", 1, 15, "1 to 9");
}

#[test]
fn first_rule_of_toml_that_fits_decides() {
    let rules = rules(
        r#"
        default = "os"
        [[rules]]
        use = "refuse"
        remote = "198.51.100.7"
        [[rules]]
        use = "both"
        traffic = "tcp-server"
        local = "*:6379"
        [[rules]]
        use = "offload"
        traffic = ["tcp-server", "udp-receiver"]
        local = "192.0.2.0/24:5000-5010"
        "#,
    );
    let check = |traffic, local, remote, expected| assert_eq!(decide(&rules, "p", traffic, local, remote), expected);
    check(Traffic::TcpServer, "0.0.0.0:6379", "", (Role::Both, "rule 2 of f"));
    check(Traffic::UdpReceiver, "192.0.2.9:5010", "", (Role::Offload, "rule 3 of f"));
    check(Traffic::UdpReceiver, "192.0.2.9:5011", "", (Role::Os, "default of f"));
    check(Traffic::TcpClient, NO_ADDRESS, "198.51.100.7:1", (Role::Refuse, "rule 1 of f"));
    check(Traffic::UdpConnect, NO_ADDRESS, "198.51.100.8:1", (Role::Os, "default of f"));
}

#[test]
fn all_is_the_kernels_where_the_default_says_so_and_no_rule_gives_or_refuses_anything() {
    let leave = |text: &str| rules(text).leave_all("engine", None);
    assert!(!Rules::default().leave_all("engine", None));
    assert!(leave("default = \"os\"\n") && !leave("default = \"offload\"\n") && !leave(""));
    for role in ["offload", "both", "refuse"] {
        assert!(!leave(&format!("default = \"os\"\n[[rules]]\nuse = \"{role}\"\ntraffic = \"tcp-client\"\n")));
        let of = |name: &str| {
            leave(&format!("default = \"os\"\n[[programs]]\nname = \"{name}\"\nrules = [{{ use = \"{role}\" }}]\n"))
        };
        assert!(of("another") && !of("engine"));
    }
}

#[test]
fn program_has_its_own_engines_or_those_of_all() {
    let text = "engines = 2\n[[programs]]\nname = \"mem*\"\nid = \"B1\"\nengines = 15\n[[programs]]\nname = \"mem*\"\n";
    let of = |text, program, id| rules(text).engines(program, id);
    assert_eq!(of(text, "memcached", Some("B1")), Some(15));
    assert_eq!(of(text, "memcached", None), Some(2), "the second section says nothing of them");
    assert_eq!(of("default = \"os\"", "memcached", None), None);
    assert_eq!(of("use os tcp_server *:1", "memcached", None), None, "libvma.conf has no word for them");
    for value in ["0", "16", "-1", "0x2", "\"per_thread\"", "[2]"] {
        refused(&format!("# all\nengines = {value}"), 2, 11, "expected a number of engines from 1 to 15");
    }
    refused("[[programs]]\nname = \"x\"\n  engines = 1.5", 3, 13, "expected a number of engines from 1 to 15");
    refused("engine = 2", 1, 1, "expected default or engines or rules or programs, and found \"engine\"");
}

#[test]
fn program_of_toml_is_asked_before_the_rules_for_all() {
    let rules = rules(
        r#"
        rules = [{ use = "os", traffic = "tcp-server", local = "*:22" }]
        programs = [
            { name = "redis-*", rules = [{ use = "os", local = "*:1" }] },
            { name = "redis-server", id = "B1", default = "refuse" },
        ]
        "#,
    );
    let check = |program, local, expected| assert_eq!(decide(&rules, program, Traffic::TcpServer, local, ""), expected);
    check("redis-cli", "0.0.0.0:1", (Role::Os, "rule 1 of redis-* in f"));
    check("redis-cli", "0.0.0.0:22", (Role::Os, "rule 1 of f"));
    check("redis-cli", "0.0.0.0:2", (Role::Offload, "no rule of f fits"));
    check("redis-server#B1", "0.0.0.0:2", (Role::Refuse, "default of redis-server in f"));
    check("redis-server", "0.0.0.0:2", (Role::Offload, "no rule of f fits"));
}

#[test]
fn dns_is_the_kernels_unless_a_rule_takes_it() {
    let dns = |text| decide(&rules(text), "p", Traffic::UdpConnect, NO_ADDRESS, "192.0.2.1:53").0;
    assert_eq!(dns(""), Role::Os);
    assert_eq!(dns("default = \"offload\""), Role::Os);
    assert_eq!(dns("default = \"refuse\""), Role::Refuse);
    assert_eq!(dns("rules = [{ use = \"offload\", remote = \"*:53\" }]"), Role::Offload);
    assert_eq!(dns("programs = [{ name = \"p\", default = \"offload\" }]"), Role::Os);
}

#[test]
fn errors_of_toml_say_where_and_what_was_expected() {
    refused("default = \"vma\"", 1, 11, "\"offload\", \"os\", \"both\" or \"refuse\", and found \"vma\"");
    refused("defualt = \"os\"", 1, 1, "default or engines or rules or programs, and found \"defualt\"");
    refused("[rules]\nuse = \"os\"", 1, 1, "two brackets");
    refused("[[rules]]\nlocal = \"*:1\"", 1, 1, "expected use");
    refused("[[rules]]\nuse = \"os\"\ntraffic = \"tcp\"", 3, 11, "\"tcp-server\"");
    refused("[[rules]]\nuse = \"os\"\ntraffic = []", 3, 11, "found none");
    refused("[[rules]]\nuse = \"os\"\ntraffic = [\"tcp-server\", 7]", 3, 26, "\"tcp-server\"");
    refused("[[rules]]\nuse = \"os\"\nlocal = \"1.2.3:4\"", 3, 9, "found \"1.2.3:4\"");
    for wrong in ["1.2.3.4/33", "1.2.3.4:+5", "1.2.3.4:9-8", "1.2.3.4:65536", "1.2.3.4:", "", "::1", "host:80"] {
        refused(&format!("[[rules]]\nuse = \"os\"\nlocal = {wrong:?}"), 3, 9, "an address and a port");
    }
    let server = "[[rules]]\nuse = \"os\"\ntraffic = \"tcp-server\"\nremote = \"*:1\"";
    refused(server, 4, 10, "no remote");
    refused("[[rules]]\nuse = \"both\"\ntraffic = \"udp-sender\"", 2, 7, "leaves once");
    refused("[[programs]]\nid = \"x\"", 1, 1, "expected a name");
    refused("rules = [{ use = \"os\" ]", 1, 23, "");
    refused("ä = 1", 1, 1, "");
}

#[test]
fn file_that_is_no_file_of_rules_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let error = Rules::load(&path).map(drop).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read the rules {}: ", path.display())), "{error}");
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(matches!(Rules::load(&path), Err(RulesError::TooLong { .. })));
    std::fs::write(&path, b"# gr\xfc\xdfe\nuse os tcp_server *:1\n").unwrap();
    let rules = Rules::load(&path).unwrap();
    assert_eq!(decide(&rules, "p", Traffic::TcpServer, "0.0.0.0:1", ""), (Role::Os, "line 2 of x"));
}

#[test]
fn fifo_and_device_are_refused_without_a_wait_and_an_inherited_pipe_is_read() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let refused = |path: &std::path::Path| {
        let error = Rules::load(path).map(drop).unwrap_err();
        assert!(matches!(error, RulesError::NoFile { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("{} is neither a file nor a pipe", path.display())), "{error}");
    };
    refused(&fifo);
    refused("/dev/zero".as_ref());
    // By its descriptor it is the same FIFO: who opens it again may wait.
    let both = std::fs::File::options().read(true).write(true).open(&fifo).unwrap();
    refused(format!("/dev/fd/{}", both.as_raw_fd()).as_ref());
    let (read, mut write) = std::io::pipe().unwrap();
    write.write_all(b"use os tcp_server *:1\n").unwrap();
    drop(write);
    let rules = Rules::load(format!("/dev/fd/{}", read.as_raw_fd()).as_ref()).unwrap();
    assert_eq!(decide(&rules, "p", Traffic::TcpServer, "0.0.0.0:1", "").0, Role::Os);
}

/// Pieces of both grammars, so that random texts go far into them.
const PIECES: &[&str] = &[
    "use",
    "os",
    "vma",
    "*",
    "tcp_server",
    "tcp_client",
    "udp_connect",
    ":",
    "/",
    "-",
    ".",
    "0",
    "7",
    "255",
    "65535",
    "99999",
    "application-id",
    "log",
    "destination",
    "file",
    "min-level",
    " ",
    "\n",
    "\t",
    "#",
    "[[rules]]",
    "[[programs]]",
    "default",
    "=",
    "\"os\"",
    "\"both\"",
    "traffic",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\"*:80\"",
    "\"1.2.3.4/8:1-9\"",
    "name",
    "remote",
    "local",
    "ä",
    "\"",
    "\\",
    "\r\n",
    "\u{feff}",
    "\0",
];

proptest! {
    #[test]
    fn no_text_panics(pieces in prop::collection::vec(0..PIECES.len(), 0..60), name in ".{0,12}") {
        let text: String = pieces.into_iter().map(|idx| PIECES[idx]).collect();
        no_panic(&text, &name);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), name in ".{0,12}") {
        no_panic(&String::from_utf8_lossy(&bytes), &name);
    }

    #[test]
    fn no_pattern_panics(pattern in r"[ab*?\[\]!^\\ä-]{0,12}", name in "[abä]{0,12}") {
        pattern::matches(&pattern, &name);
    }

    /// Random patterns of stars and letters, compared with a search that tries all possibilities.
    #[test]
    fn stars_match_what_a_full_search_finds(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
        fn full(pattern: &[u8], name: &[u8]) -> bool {
            match (pattern.first(), name.first()) {
                (None, None) => true,
                (Some(b'*'), _) => full(&pattern[1..], name) || !name.is_empty() && full(pattern, &name[1..]),
                (Some(b'?'), Some(_)) => full(&pattern[1..], &name[1..]),
                (Some(letter), Some(other)) => letter == other && full(&pattern[1..], &name[1..]),
                _ => false,
            }
        }
        prop_assert_eq!(pattern::matches(&pattern, &name), full(pattern.as_bytes(), name.as_bytes()));
    }
}

/// Parses, and asks each kind of traffic; an error is one sentence with a place of the text.
fn no_panic(text: &str, program: &str) {
    match Rules::parse("f", text) {
        Ok(rules) => {
            for traffic in
                [Traffic::TcpServer, Traffic::TcpClient, Traffic::UdpReceiver, Traffic::UdpSender, Traffic::UdpConnect]
            {
                assert!(!decide(&rules, program, traffic, "1.2.3.4:80", "1.2.3.4:7").1.is_empty());
            }
        }
        Err(RulesError::Invalid { line, column, what, .. }) => {
            assert!(!what.contains('\n'), "{what}");
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            let found = text.split('\n').nth(line - 1).expect("a line of the text");
            assert!((1..=found.chars().count() + 1).contains(&column), "column {column} of {found:?}");
        }
        Err(error) => panic!("{error}"),
    }
}
