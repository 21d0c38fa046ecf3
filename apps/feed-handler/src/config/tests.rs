use super::problem::{key_of, line_and_column};
use super::*;

/// Checks that a file is refused at this line and column, in words that contain `says`.
fn refused(text: &str, line: usize, column: usize, says: &str) {
    let fault = Config::parse(text).expect_err(text);
    assert_eq!(line_and_column(text, fault.at.start), (line, column), "{text}\n{}", fault.what);
    assert!(fault.what.contains(says), "{says:?} is not in {:?}", fault.what);
    assert!(!fault.what.contains('\n'), "one sentence: {:?}", fault.what);
}

fn channel(lines: &str) -> String {
    format!("[[channels]]\nname = \"c\"\nformat = \"iex-tops\"\nlines = [\n{lines}\n]\n")
}

fn loops(format: &str, loops: &str) -> String {
    let lines = "{ group = \"239.1.1.1\", port = 1 }";
    channel(lines).replacen("iex-tops", format, 1) + "[channels.loops]\n" + loops
}

#[test]
fn loops_of_a_channel_are_read_and_those_that_cannot_be_are_refused() {
    let line = |group: u8| format!("{{ group = \"239.1.1.{group}\", port = 1 }}");
    let good = format!("snapshots = [{}, {}]\ndefinitions = [{}]\nqueue_mb = 1\n", line(2), line(3), line(4));
    let sets = Config::parse(&loops("cme-mdp3", &good)).unwrap().sets();
    let plan = sets[0].recovery.loops.as_ref().unwrap();
    assert_eq!((plan.snapshots.len(), plan.definitions.len()), (2, 1));
    assert_eq!((plan.limits.queue_len_max, plan.limits.messages_max), (1 << 20, 1 << 14));
    assert!(Config::parse(&loops("b3-umdf", &good)).unwrap().sets()[0].recovery.loops.is_some());
    refused(&loops("mold-itch50", &good), 7, 1, "has no loops");
    refused(&loops("cme-mdp3", "snapshots = []\n"), 8, 13, "give it 1 to");
    refused(&loops("cme-mdp3", "definitions = []\n"), 7, 1, "snapshots");
    refused(&loops("cme-mdp3", &format!("snapshots = [{}]\n", line(1))), 8, 24, "is a line of channel");
}

#[test]
fn unknown_key_is_refused_where_it_stands() {
    refused("[worker]\nburst = 32\nbrust = 1\n", 3, 1, "brust");
    refused("[wroker]\n", 1, 2, "wroker");
    refused(&channel("{ group = \"239.1.1.1\", prot = 1 }"), 5, 24, "prot");
}

#[test]
fn channel_numbers_are_some_different_ones_of_a_format_that_has_them() {
    let named = |format: &str, numbers: &str| {
        let lines = "lines = [{ group = \"239.1.1.1\", port = 1 }]";
        format!("[[channels]]\nname = \"c\"\nformat = \"{format}\"\nnumbers = {numbers}\n{lines}\n")
    };
    refused(&named("mold-itch50", "[0]"), 4, 11, "packets of mold-itch50 have no channel number");
    refused(&named("cboe-pitch", "[]"), 4, 11, "0 channel numbers: name 1 to 64");
    refused(&named("cboe-pitch", "[1, 256]"), 4, 15, "use 0 to 255");
    refused(&named("iex-deep", "[1, 2, 1]"), 4, 18, "channel number 1 is named twice");
    refused(&named("iex-deep", "[-1]"), 4, 12, "a whole number, 0 or more");
    let config = Config::parse(&named("cboe-pitch", "[7, 1]")).unwrap();
    assert_eq!((&config.sets()[0].numbers[..], config.sets()[0].channels_max()), (&[7, 1][..], 2));
}

#[test]
fn server_that_a_format_does_not_have_is_refused_where_it_stands() {
    let of = |format: &str, rest: &str| {
        let lines = "lines = [{ group = \"239.1.1.1\", port = 1 }]";
        format!("[[channels]]\nname = \"c\"\nformat = \"{format}\"\n{lines}\n{rest}\n")
    };
    let server = "server = \"10.0.0.9:7\"";
    let asks = |rest: &str| format!("[channels.rerequest]\n{rest}");
    let image = |rest: &str| format!("[channels.image]\n{rest}");
    refused(&of("mold-itch50", &asks("server = \"10.0.0.9\"")), 6, 10, "address with a port");
    refused(&of("mold-itch50", &asks("server = \"239.1.1.1:7\"")), 6, 10, "cannot be reached");
    refused(&of("mold-itch50", &asks("sever = \"10.0.0.9:7\"")), 6, 1, "sever");
    refused(&of("mold-itch50", &asks(&format!("{server}\nuser = \"me\""))), 7, 8, "have no user");
    refused(&of("mold-itch50", &asks(&format!("{server}\nattempts = 0"))), 7, 12, "use 1 to 1000");
    refused(&of("iex-tops", &asks(&format!("{server}\nmessages = 1001"))), 7, 12, "1000 messages for one request");
    refused(&of("cme-mdp3", &asks(server)), 5, 1, "no server sends messages of cme-mdp3");
    refused(&of("memx-depth", &asks(server)), 5, 1, "needs token_type");
    let token = |kind: &str| format!("{server}\ntoken_type = \"{kind}\"\ntoken = \"SECRET\"");
    refused(&of("memx-depth", &asks(&token("PP"))), 5, 1, "one letter");
    let proxy = format!("{server}\ngroup = \"239.1.1.1\"\nport = 7");
    let proxy = format!("{proxy}\nsession = \"1\"\nuser = \"U\"\npassword = \"P\"");
    for (format, keys) in [("memx-depth", token("P")), ("cboe-pitch", proxy)] {
        let rest = format!("bind = \"127.0.0.1:0\"\n{keys}");
        refused(&of(format, &asks(&rest)), 6, 8, &format!("servers of {format} have no bind"));
    }
    for (key, value) in [("port", "7"), ("interface", "\"127.0.0.1\"")] {
        let rest = format!("{}\n{key} = {value}", token("P"));
        let column = key.len() + 4;
        refused(&of("memx-depth", &asks(&rest)), 9, column, &format!("servers of memx-depth have no {key}"));
        refused(&of("iex-tops", &asks(&format!("{server}\n{key} = {value}"))), 7, column, "have no");
    }
    refused(&of("memx-depth", &image(server)), 5, 1, "no server sends images");
    refused(&of("mold-itch50", &asks(&token("P"))), 7, 14, "have no token_type");
    refused(&of("cboe-pitch", &asks(server)), 5, 1, "needs group");
    let login = "session = \"0001\"\nuser = \"USER\"\npassword = \"SECRET\"";
    let group = "group = \"239.1.1.2\"";
    refused(&of("cboe-pitch", &asks(&format!("{server}\n{group}"))), 5, 1, "needs session");
    refused(&of("cboe-pitch", &asks(&format!("{server}\n{group}\n{login}"))), 5, 1, "needs port");
    refused(&of("cboe-pitch", &image(&format!("{server}\n{login}").replace("USER", "USERS"))), 8, 8, "4 characters");
    refused(&of("mold-itch50", &image(server)), 5, 1, "needs user");
    refused(&of("iex-deep", &image(server)), 5, 1, "no server sends images of the books of iex-deep");
    let units =
        |numbers: &str| of("cboe-pitch", &format!("numbers = {numbers}\n{}", image(&format!("{server}\n{login}"))));
    refused(&units("[1, 2]"), 6, 1, "names no unit");
    assert!(Config::parse(&units("[2]")).is_ok(), "the image is that of the only unit");
    let glimpse = of("mold-itch50", &image(&format!("{server}\nuser = \"me\"\npassword = \"x\"")));
    let config = Config::parse(&glimpse).unwrap();
    assert!(config.sets()[0].recovery.image.is_some() && config.sets()[0].recovery.requests.is_none());
}

#[test]
fn window_that_keeps_nothing_is_refused_where_messages_are_asked_for() {
    let lines = "lines = [{ group = \"239.1.1.1\", port = 1 }]";
    let channel = format!("[[channels]]\nname = \"c\"\nformat = \"mold-itch50\"\n{lines}\n");
    let window = |packets: usize| format!("[arbitration]\nwindow_packets = {packets}\n");
    let asks = "[channels.rerequest]\nserver = \"10.0.0.9:7\"\n";
    refused(&format!("{}{channel}{asks}", window(0)), 2, 18, "no request is ever made");
    assert!(Config::parse(&format!("{}{channel}{asks}", window(1))).is_ok());
    assert!(Config::parse(&format!("{}{channel}", window(0))).is_ok());
}

#[test]
fn hole_waits_longer_where_its_messages_are_asked_for() {
    let lines = "lines = [{ group = \"239.1.1.1\", port = 1 }]";
    let text = format!("[[channels]]\nname = \"c\"\nformat = \"mold-itch50\"\n{lines}\n");
    let asking = format!("{text}[channels.rerequest]\nserver = \"10.0.0.9:7\"\nper_second = 100\n");
    let [text, asking] = [text, asking].map(|text| Config::parse(&text).unwrap());
    assert_eq!((text.window().packets, asking.window().packets), (256, 2_048));
    let requests = asking.sets()[0].recovery.requests.clone().unwrap();
    assert_eq!((requests.retry.interval_ns, requests.retry.attempts), (10_000_000, 3));
    assert!(requests.retry.wait_ns() > requests.retry.unanswered_ns());
}

#[test]
fn value_out_of_range_is_refused_with_the_range() {
    refused("[worker]\nburst = 65\n", 2, 9, "use 1 to 64");
    refused("[worker]\nburst = 0\n", 2, 9, "use 1 to 64");
    refused("[worker]\nburst = \"many\"\n", 2, 9, "expected a whole number");
    refused("[worker]\nbuffers = 8\n", 2, 11, "use 512");
    refused("[worker]\ncpu = -1\n", 2, 7, "number of a core");
    refused("[device]\npace = \"fast\"\n", 2, 8, "10x");
    refused("[checksums]\nudp = \"maybe\"\n", 2, 7, "accept-partial");
}

#[test]
fn line_that_cannot_be_is_refused() {
    refused(&channel("{ group = \"10.0.0.1\", port = 1 }"), 5, 11, "not a multicast address");
    refused(&channel("{ group = \"239.1.1.1\", port = 0 }"), 5, 31, "use 1 to 65535");
    refused(&channel("{ group = \"239.1.1.1\", port = 1, vlan = 4095 }"), 5, 41, "4094");
    refused(&channel("{ group = \"239.1.1.1\", port = 1, sources = [\"239.1.1.2\"] }"), 5, 44, "cannot send");
    refused(&channel("{ group = \"239.1.1.1\" }"), 5, 1, "port");
}

/// Channels of two lines each on queue 0 and 1 in turn.
fn two_queues(channels: usize) -> String {
    let section = |idx: usize| {
        let (high, low, queue) = (idx / 256, idx % 256, idx % 2);
        let lines =
            format!("{{ group = \"239.1.{high}.{low}\", port = 1 }}, {{ group = \"239.2.{high}.{low}\", port = 1 }}");
        format!("[[channels]]\nname = \"{idx}\"\nformat = \"iex-tops\"\nqueue = {queue}\nlines = [{lines}]\n")
    };
    let port = "[port]\ninterface = \"eth1\"\nigmp = \"kernel\"\nqueues = [0, 1]\n";
    port.to_owned() + &(0..channels).map(section).collect::<String>()
}

#[test]
fn limit_of_groups_is_that_of_each_worker() {
    let most = two_queues(GROUPS_MAX);
    assert!(Config::parse(&most).is_ok(), "2,048 groups, half of them for each of two workers");
    let over = two_queues(GROUPS_MAX + 1);
    let fault = Config::parse(&over).expect_err("one channel too many for queue 0");
    assert!(fault.what.contains("a worker has 1026 groups, and one receives 1024 at most"), "{}", fault.what);
    assert!(over[fault.at.start..].contains("name = \"1024\""), "it is told where it stands");
    let one_worker = two_queues(GROUPS_MAX / 2 + 1).replace("queue = 1\n", "queue = 0\n");
    assert!(Config::parse(&one_worker).is_err(), "1,026 groups for one worker");
}

#[test]
fn channels_of_several_formats_are_read() {
    let line = |group| format!("{{ group = \"239.1.1.{group}\", port = 1 }}");
    let other = channel(&line(2)).replace("\"c\"", "\"d\"").replace("iex-tops", "iex-deep");
    let config = Config::parse(&(channel(&line(1)) + &other)).unwrap();
    assert!(config.formats().eq([Format::IexTops, Format::IexDeep]));
    assert!(config.sets().iter().map(|set| set.format).eq(config.formats()));
}

#[test]
fn channels_that_contradict_each_other_are_refused() {
    refused(&channel(""), 4, 9, "1 to 4");
    let line = "{ group = \"239.1.1.1\", port = 1 }";
    refused(&channel(&format!("{line},\n{line}")), 6, 11, "already");
    let two = format!("{}{}", channel(line), channel(&line.replace(".1.1.1", ".1.1.2")));
    refused(&two, 8, 8, "two channels are called");
    refused(&channel(line).replace("iex-tops", "itch50-file"), 3, 10, "--format itch50-file");
    refused(&channel(line).replace("iex-tops", "itch"), 3, 10, "mold-itch50, iex-tops");
}

#[test]
fn port_that_cannot_be_is_refused() {
    refused("[port]\nqueues = [0]\n", 1, 1, "interface");
    refused("[port]\ninterface = \"a/b\"\n", 2, 13, "no name of an interface");
    let port = |rest: &str| format!("[port]\ninterface = \"eth1\"\n{rest}\n");
    refused(&port("rx_ring = 100"), 3, 11, "power of two");
    refused(&port("rx_ring = 32"), 3, 11, "64 to 65536");
    refused(&port("device = \"mlx5\"\ntx_ring = 16384"), 4, 11, "8 to 8192");
    refused(&port("device = \"mlx5\"\nmode = \"native\""), 4, 8, "of device = \"af_xdp\"");
    refused(&port("mode = \"fast\""), 3, 8, "generic");
    refused(&port("timestamps = \"maybe\""), 3, 14, "true, false, or \"required\"");
    refused(&port("timestamps = \"required\""), 3, 14, "only device = \"mlx5\" can demand");
    refused(&port("striding = \"never\""), 3, 12, "of device = \"mlx5\"");
    refused(&port("device = \"mlx5\"\nstriding = \"maybe\""), 4, 12, "if supported");
    let both = "device = \"mlx5\"\ntimestamps = \"required\"\ncompression = \"required\"";
    refused(&port(both), 5, 15, "share their time stamps");
    refused(&port("igmp = \"v3\""), 3, 8, "kernel");
    refused(&port("igmp = \"worker\"\nigmp_version_min = 4"), 4, 20, "versions 1, 2 and 3");
    refused(&port("igmp_version_min = 3"), 3, 20, "force_igmp_version");
    refused(&port("queues = [1, 1]"), 3, 10, "each queue once");
    refused(&port("igmp = \"worker\"\nqueues = [0, 1]"), 4, 10, "igmp = \"kernel\"");
    refused(&port("vlan = 20"), 3, 8, "name it at the lines");
    refused(&port("vlan = \"100.5.6\""), 3, 8, "the provider's first");
    refused(&port("vlan = \"100.4095\""), 3, 8, "4094");
    let channel = channel("{ group = \"239.1.1.1\", port = 1 }").replacen("lines", "queue = 2\nlines", 1);
    refused(&(port("queues = [0, 1]") + &channel), 7, 9, "not among the port's queues");
}

#[test]
fn host_that_cannot_be_is_refused() {
    let own = |host: &str| format!("[port]\ninterface = \"eth1\"\nowner = \"dedicated\"\n[host]\n{host}\n");
    refused(&own("addresses = []"), 5, 13, "give it an address");
    refused(&own("addresses = [\"10.0.0.2\"]"), 5, 13, "like 10.0.0.1/24");
    refused(&own("addresses = [\"10.0.0.2/24\"]\ngateway = \"10.0.1.1\""), 6, 11, "none of our networks");
    refused(&own("").replace("\"dedicated\"", "\"shared\""), 4, 1, "addresses");
    let shared = own("addresses = [\"10.0.0.2/24\"]").replace("\"dedicated\"", "\"shared\"");
    refused(&shared, 4, 1, "the kernel says who we are");
    refused("[port]\ninterface = \"eth1\"\nowner = \"dedicated\"\n", 2, 13, "needs [host]");
}

#[test]
fn address_that_no_host_can_have_is_refused_where_it_stands() {
    let own = |host: &str| format!("[port]\ninterface = \"eth1\"\nowner = \"dedicated\"\n[host]\n{host}\n");
    let ours = "addresses = [\"10.0.0.2/24\"]";
    refused(
        &own("addresses = [\"10.0.0.2/24\", \"239.1.1.1/24\"]"),
        5,
        29,
        "239.1.1.1 cannot be the address of a host",
    );
    refused(&own("addresses = [\"127.0.0.1/8\"]"), 5, 14, "cannot be the address of a host");
    refused(&own("addresses = [\"10.0.0.255/24\"]"), 5, 14, "cannot be the address of a host");
    refused(&own("addresses = [\"10.0.0.2/24\", \"10.0.0.2/16\"]"), 5, 29, "named twice");
    refused(&own(&format!("{ours}\ngateway = \"10.0.0.2\"")), 6, 11, "is our own address");
    let route = |via: &str| format!("{ours}\nroutes = [{{ network = \"172.16.0.0/12\", via = \"{via}\" }}]");
    refused(&own(&route("10.0.0.2")), 6, 46, "is our own address");
    refused(&own(&route("10.9.0.2")), 6, 46, "none of our networks");
    let neighbor =
        |address: &str, mac: &str| format!("{ours}\nneighbors = [{{ address = \"{address}\", mac = \"{mac}\" }}]");
    refused(&own(&neighbor("10.0.0.2", "02:00:00:00:00:01")), 6, 26, "a neighbor is another station");
    refused(&own(&neighbor("10.0.0.3", "ff:ff:ff:ff:ff:ff")), 6, 44, "cannot be the MAC address");
    refused(&own(&neighbor("127.0.0.1", "02:00:00:00:00:01")), 6, 26, "cannot be the address of a host");
    refused(
        &own(&format!("{ours}\ntakes = \"everything\"")).replace("[host]", "igmp = \"kernel\"\n[host]"),
        7,
        9,
        "no queries",
    );
}

#[test]
fn more_than_a_host_has_room_for_is_refused_at_the_first_that_finds_none() {
    let own = |host: &str| format!("[port]\ninterface = \"eth1\"\nowner = \"dedicated\"\n[host]\n{host}\n");
    let addresses: Vec<_> = (0..65).map(|idx| format!("\"10.{idx}.0.2/24\"")).collect();
    refused(&own(&format!("addresses = [\n{}\n]", addresses.join(",\n"))), 70, 1, "give the host fewer addresses");
    let neighbors: Vec<_> = (0..600)
        .map(|idx| format!("{{ address = \"10.1.{}.{}\", mac = \"02:00:00:00:00:01\" }}", idx / 250, 3 + idx % 250))
        .collect();
    let text = own(&format!("addresses = [\"10.1.0.2/16\"]\nneighbors = [\n{}\n]", neighbors.join(",\n")));
    let fault = Config::parse(&text).expect_err("600 neighbors");
    assert!(fault.what.contains("give the host fewer neighbors"), "{}", fault.what);
    assert_eq!(key_of(&text, fault.at.start), Some("address"));
}

#[test]
fn line_of_another_vlan_than_the_port_is_refused() {
    let own = "[port]\ninterface = \"eth1\"\nowner = \"dedicated\"\nvlan = 20\n[host]\naddresses = [\"10.0.0.2/24\"]\n";
    let text = format!("{own}{}", channel("{ group = \"239.1.1.1\", port = 1, vlan = 21 }"));
    refused(&text, 11, 41, "the port is in VLAN 20");
}

#[test]
fn key_of_a_value_is_named() {
    let text = "[worker]\nburst = 65\n[host]\naddresses = [\"a\", \"b\"]\n";
    let at = |what: &str| text.find(what).unwrap();
    assert_eq!(key_of(text, at("65")), Some("burst"));
    assert_eq!(key_of(text, at("\"b\"")), Some("addresses"));
    assert_eq!(key_of(text, at("burst")), None);
    assert_eq!(key_of(text, at("addresses")), None);
    assert_eq!(key_of(text, at("[host]")), None);
}

#[test]
fn what_the_port_demands_reaches_the_device() {
    use wirepath::device::mlx5::Feature::{self, IfSupported, Off, Required};
    use wirepath::worker::live::PortConfig;
    let features = |rest: &str| -> [Feature; 3] {
        let text = format!("[port]\ninterface = \"eth1\"\ndevice = \"mlx5\"\n{rest}\n");
        match Config::parse(&text).unwrap().live().unwrap().port {
            PortConfig::Mlx5(port) => [port.timestamps, port.compression, port.striding],
            _ => panic!("it is an mlx5"),
        }
    };
    assert_eq!(features(""), [Off; 3]);
    assert_eq!(features("timestamps = false\ncompression = \"never\"\nstriding = \"never\""), [Off; 3]);
    let possible = "timestamps = true\ncompression = \"if supported\"\nstriding = \"if supported\"";
    assert_eq!(features(possible), [IfSupported; 3]);
    assert_eq!(features("timestamps = \"required\"\nstriding = \"required\""), [Required, Off, Required]);
    assert_eq!(features("compression = \"required\""), [Off, Required, Off]);
}

#[test]
fn port_of_our_own_may_be_in_a_vlan_or_in_two() {
    let vlan = |vlan: &str| {
        let text = format!("[port]\ninterface = \"eth1\"\nowner = \"dedicated\"\nvlan = {vlan}\n");
        let config = Config::parse(&format!("{text}[host]\naddresses = [\"10.0.0.2/24\"]\n")).unwrap();
        config.live().unwrap().vlan.as_slice().iter().map(|tag| tag.vid()).collect::<Vec<_>>()
    };
    assert_eq!([vlan("20"), vlan("\"20\""), vlan("\"100.5\"")], [vec![20], vec![20], vec![100, 5]]);
}

#[test]
fn file_that_is_no_toml_is_refused() {
    refused("[worker\n", 1, 8, "");
}

#[test]
fn empty_file_is_the_defaults() {
    let config = Config::parse("").unwrap();
    assert_eq!(config.worker().burst_len, 32);
    assert_eq!(config.checksum(), None);
    assert!(config.sets().is_empty() && config.formats().next().is_none() && config.live().is_none());
}

#[test]
fn example_file_holds() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("example.toml");
    let config = Config::read(&path).unwrap();
    assert_eq!(config.formats().next(), Some(Format::MoldItch50));
    assert_eq!(config.sets()[0].lines.len(), 2);
}
