use order_entry::fix::CopiedSession;
use order_entry::fix::session::Version;
use order_entry::risk::Route;

use super::*;
use crate::drop_copy::DropCopyProtocol;

const GOOD: &str = r#"
limits = "limits.toml"

[venue]
protocol = "ouch50"
primary = "192.0.2.1:9100"
user = "TRADER"
password = "SECRET"
firm = "FIRM"
capacity = "principal"

[journal]
path = "orders.journal"
"#;

fn place(text: &str) -> (usize, usize, String) {
    let problem = parse::<Config>(text, Config::check).unwrap_err();
    let (line, column) = line_and_column(text, problem.at.start);
    (line, column, problem.what)
}

#[test]
fn least_file_has_the_defaults() {
    let config = parse::<Config>(GOOD, Config::check).unwrap();
    assert_eq!((config.journal.len(), config.journal.reserve()), (256 << 20, 8 << 20));
    assert_eq!(config.journal.sync(), SyncPolicy::Timed);
    assert_eq!(config.feed().count(), 0);
    assert!(matches!(config.client(&[], 0), Some(VenueClient::Ouch(_))));
}

#[test]
fn user_that_is_too_long_is_named_with_line_and_column() {
    let text = GOOD.replace("TRADER", "TRADERS");
    assert_eq!(place(&text), (7, 8, "a user of SoupBinTCP has 6 bytes at most".into()));
}

#[test]
fn options_of_a_port_are_keys_of_ouch50_alone() {
    let text = GOOD.replace("[journal]", "[venue.ouch50]\nroute = \"SCAN\"\n\n[journal]");
    assert!(matches!(parse::<Config>(&text, Config::check).unwrap().client(&[], 0), Some(VenueClient::Ouch(_))));
    let (line, _, what) = place(&text.replace("protocol = \"ouch50\"", "protocol = \"ouch42\""));
    assert_eq!((line, what.as_str()), (12, "ouch42 has no key `ouch50`"));
}

#[test]
fn unknown_key_is_refused_where_it_stands() {
    let text = GOOD.replace("[journal]", "colour = 1\n\n[journal]");
    assert_eq!((place(&text).0, place(&text).1), (12, 1));
}

#[test]
fn group_that_is_none_is_refused() {
    let text = format!("{GOOD}\n[[feed]]\ngroup = \"10.0.0.1\"\nport = 1\ninterface = \"10.0.0.1\"\n");
    assert!(place(&text).2.contains("no multicast group"));
}

#[test]
fn line_of_a_feed_has_the_sources_that_it_names_and_else_none() {
    let text = |sources: &str| {
        format!("{GOOD}\n[[feed]]\ngroup = \"239.0.0.1\"\nport = 1\ninterface = \"10.0.0.1\"\n{sources}\n")
    };
    let sources = |text: &str| parse::<Config>(text, Config::check).unwrap().feed_lines().next().unwrap().sources;
    assert!(sources(&text("")).is_empty());
    let two = text("sources = [\"198.51.100.1\", \"198.51.100.2\"]");
    assert_eq!(sources(&two), [Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(198, 51, 100, 2)]);
    let wrong = text("sources = [\"239.1.1.2\"]");
    let line = wrong.lines().position(|line| line.starts_with("sources")).unwrap() + 1;
    let (at, column, what) = place(&wrong);
    assert_eq!((at, column), (line, 11));
    assert!(what.contains("239.1.1.2 cannot send"), "{what}");
    for (list, why) in [("[]", "no source"), ("[\"198.51.100.1\", \"198.51.100.1\"]", "198.51.100.1 is named twice")] {
        let (at, column, what) = place(&text(&format!("sources = {list}")));
        assert_eq!((at, column, what.contains(why)), (line, 11, true), "{what}");
    }
}

#[test]
fn servers_of_a_feed_have_the_keys_of_feed_handler_and_need_a_feed() {
    let feed = "[[feed]]\ngroup = \"239.0.0.1\"\nport = 1\ninterface = \"10.0.0.1\"";
    let servers = "[rerequest]\nserver = \"192.0.2.1:26478\"\nattempts = 7\n\
                   [image]\nserver = \"192.0.2.1:26479\"\nuser = \"USER\"\npassword = \"SECRET\"";
    let text = |feed: &str, servers: &str| format!("{GOOD}\n{feed}\n{servers}\n");
    let plan = parse::<Config>(&text(feed, servers), Config::check).unwrap().recovery();
    assert_eq!(plan.requests.map(|requests| requests.retry.attempts), Some(7));
    assert!(plan.image.is_some());
    assert!(parse::<Config>(&text(feed, ""), Config::check).unwrap().recovery().is_empty());
    assert!(place(&text("", servers)).2.contains("there is none"));
    let of_cboe = servers.replace("attempts", "session = \"0001\"\nattempts");
    assert!(place(&text(feed, &of_cboe)).2.contains("have no session"));
}

#[test]
fn quotes_have_the_names_of_their_feed() {
    let text = |rest: &str| format!("{GOOD}\n[quotes]\nring = \"/dev/shm/cme.ring\"\n{rest}\n");
    let config = parse::<Config>(&text("names = { ESZ6 = \"#5485\", CLF7 = \"CL\" }"), Config::check).unwrap();
    let ours = ["ESZ6", "CLF7", "AAPL"].map(|name| Symbol::new(name).unwrap());
    let (ring, names) = config.quotes(&ours).unwrap();
    assert_eq!(ring, Path::new("/dev/shm/cme.ring"));
    assert_eq!(names, [Symbol::from_number(5_485), Symbol::new("CL").unwrap(), ours[2]]);
    for name in ["#", "#-1", "#4294967296", "", "TOO LONG A NAME"] {
        assert!(place(&text(&format!("names = {{ ESZ6 = \"{name}\" }}"))).2.contains("1 to 8 bytes"), "{name}");
    }
    let twice = text("[quotes.names]\nESZ6 = \"#5485\"\nCLF7 = \"#5485\"");
    let (line, column, what) = place(&twice);
    let first = twice.lines().position(|line| line.starts_with("ESZ6")).unwrap() + 1;
    assert_eq!((line, column), (first + 1, 8));
    assert!(what.contains("the feed's name of another instrument"), "{what}");
    let channels = parse::<Config>(&text("channels = { CLF7 = 7 }"), Config::check).unwrap();
    assert_eq!(channels.quote_channels(&ours), [None, Some(7), None]);
    let both = text("[[feed]]\ngroup = \"239.0.0.1\"\nport = 1\ninterface = \"10.0.0.1\"");
    assert!(place(&both).2.contains("omit one of them"));
}

/// What is written where, the line and column that the error names, and a word of it.
#[test]
fn each_mistake_is_named_with_line_and_column() {
    for (from, to, at, word) in [
        ("192.0.2.1:9100", "192.0.2.1", (6, 11), "an IPv4 address and a port"),
        ("ouch50", "ouch49", (5, 12), "ouch49"),
        ("user = \"TRADER\"\n", "", (5, 12), "ouch50 needs the key `user`"),
        ("firm = ", "sender = \"US\"\nfirm = ", (9, 10), "ouch50 has no key `sender`"),
        ("ouch50", "fix44", (5, 12), "fix44 needs the key `sender`"),
        ("SECRET", "SECRETSECRET", (8, 12), "10 bytes at most"),
        ("FIRM", "FIRMS", (9, 8), "4 bytes at most"),
        ("capacity = \"principal\"\n", "", (5, 12), "ouch50 needs the key `capacity`"),
        ("principal", "principle", (10, 12), "principle"),
        ("limits = \"", "limits = 1 # \"", (2, 10), "string"),
        ("[journal]", "[journal", (12, 9), ""),
        ("[journal]", "[journal]\nmegabytes = 8", (13, 13), "no room for orders"),
        ("[journal]", "[journal]\nsync = \"never\"", (13, 8), "never"),
        ("[journal]", "[standby]\nlisten = \"192.0.2.1:1\"\nlease_ms = 5\n[journal]", (14, 12), "20 ms at least"),
        ("[journal]", "[mirror]\nvia = \"eth1\"\nlease_ms = 60001\n[journal]", (14, 12), "60000 ms at most"),
        ("[journal]", "[standby]\nlisten = \"here\"\n[journal]", (13, 10), "an IPv4 address and a port"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let (line, column, what) = place(&text);
        assert_eq!((line, column), at, "{to}: {what}");
        assert!(what.contains(word), "{to}: {what}");
    }
}

#[test]
fn section_of_ouch_42_has_the_keys_of_50_and_makes_its_session() {
    let config = parse::<Config>(&GOOD.replace("ouch50", "ouch42"), Config::check).unwrap();
    assert!(matches!(config.client(&[], 0), Some(VenueClient::Ouch42(_))));
    let (_, _, what) = place(&GOOD.replace("ouch50", "ouch42").replace("capacity = \"principal\"\n", ""));
    assert!(what.contains("ouch42 needs the key `capacity`"), "{what}");
}

const FIX: &str = r#"
limits = "limits.toml"

[venue]
protocol = "fix42"
primary = "192.0.2.1:9100"
sender = "FIRM"
target = "VENUE"
heartbeat_s = 5
opens = "22:00"
closes = "21:00"

[journal]
path = "orders.journal"
"#;

#[test]
fn section_of_fix_makes_its_session() {
    for protocol in ["fix42", "fix44", "fix50"] {
        let config = parse::<Config>(&FIX.replace("fix42", protocol), Config::check).unwrap();
        assert!(matches!(config.client(&[], 0), Some(VenueClient::Fix(_))), "{protocol}");
    }
}

#[test]
fn each_mistake_of_fix_is_named_with_line_and_column() {
    for (from, to, at, word) in [
        ("\"FIRM\"", "\"\"", (7, 10), "`sender` must be printable ASCII"),
        ("VENUE", "VEN\\u0001UE", (8, 10), "`target` must be printable ASCII"),
        ("heartbeat_s = 5", "heartbeat_s = 0", (9, 15), "without heartbeats"),
        ("22:00", "25:00", (10, 9), "an hour and a minute of UTC"),
        ("closes = \"21:00\"\n", "", (10, 9), "`opens` and `closes` go together"),
        ("heartbeat_s = 5", "capacity = \"riskless-principal\"", (9, 12), "fix42 has no such capacity"),
        ("heartbeat_s = 5", "user = \"TRADER\"", (9, 8), "fix42 has no key `user`"),
    ] {
        let text = FIX.replacen(from, to, 1);
        assert_ne!(text, FIX, "{from}");
        let (line, column, what) = place(&text);
        assert!(what.contains(word), "{to}: {what}");
        assert_eq!((line, column), at, "{to}: {what}");
    }
}

const BOE: &str = r#"
limits = "limits.toml"

[venue]
protocol = "boe3"
primary = "192.0.2.1:9100"
user = "USER"
sub_id = "0001"
password = "SECRET"
operator = "DESK 7"
capacity = "customer"

[journal]
path = "orders.journal"
"#;

#[test]
fn section_of_boe_makes_its_session() {
    let config = parse::<Config>(BOE, Config::check).unwrap();
    assert!(matches!(config.client(&[], 0), Some(VenueClient::Boe3(_))));
    let equities = BOE.replace("boe3", "boe2").replace("customer", "agency").replace("operator = \"DESK 7\"\n", "");
    let config = parse::<Config>(&equities, Config::check).unwrap();
    assert!(matches!(config.client(&[], 0), Some(VenueClient::Boe2(_))));
}

#[test]
fn each_mistake_of_boe_is_named_with_line_and_column() {
    for (from, to, at, word) in [
        ("\"USER\"", "\"USERS\"", (7, 8), "4 bytes at most"),
        ("\"0001\"", "\"00001\"", (8, 10), "4 bytes at most"),
        ("sub_id = \"0001\"\n", "", (5, 12), "boe3 needs the key `sub_id`"),
        ("operator = \"DESK 7\"\n", "", (5, 12), "boe3 needs the key `operator`"),
        ("boe3", "boe2", (10, 12), "boe2 has no key `operator`"),
        ("customer", "agency", (11, 12), "boe3 has no such capacity"),
        ("capacity", "heartbeat_s = 2\ncapacity", (11, 15), "boe3 has no key `heartbeat_s`"),
        ("capacity", "sender = \"US\"\ncapacity", (11, 10), "boe3 has no key `sender`"),
        ("[journal]", "[drop_copy]\naddress = \"192.0.2.1:1\"\n[journal]", (13, 1), "copies of boe3 are by FIX"),
    ] {
        let text = BOE.replacen(from, to, 1);
        assert_ne!(text, BOE, "{from}");
        let (line, column, what) = place(&text);
        assert!(what.contains(word), "{to}: {what}");
        assert_eq!((line, column), at, "{to}: {what}");
    }
}

const ILINK3: &str = r#"
limits = "limits.toml"

[venue]
protocol = "ilink3"
primary = "192.0.2.1:9100"

[venue.ilink3]
session = "ABC"
firm = "007"
access_key = "ACCESS"
key = "c2VjcmV0"
operator = "DESK 7"
location = "US,IL"
party_details = 1
securities = { ESZ6 = 12345 }

[journal]
path = "orders.journal"
"#;

#[test]
fn section_of_ilink_3_makes_its_session_where_it_names_each_instrument() {
    let config = parse::<Config>(ILINK3, Config::check).unwrap();
    let instrument = |symbol| Instrument { symbol: Symbol::new(symbol).unwrap(), route: Route::default() };
    let (named, unnamed) = (instrument("ESZ6"), instrument("NQZ6"));
    assert!(matches!(config.client(&[named], 0), Some(VenueClient::Ilink3(_))));
    assert!(config.client(&[named, unnamed], 0).is_none());
}

#[test]
fn each_mistake_of_ilink_3_is_named_with_line_and_column() {
    for (from, to, at, word) in [
        ("\"ABC\"", "\"ABCD\"", (9, 11), "3 bytes at most"),
        ("\"007\"", "\"007007\"", (10, 8), "5 bytes at most"),
        ("c2VjcmV0", "c2Vj+mV0", (12, 7), "base64"),
        ("party_details", "keep_alive_ms = 50\nparty_details", (15, 17), "100 to 60000 ms"),
        ("\"ilink3\"", "\"boe2\"", (8, 1), "boe2 has no key `ilink3`"),
        ("primary", "user = \"USER\"\nprimary", (6, 8), "ilink3 has no key `user`"),
        ("primary", "capacity = \"customer\"\nprimary", (6, 12), "ilink3 has no such capacity"),
        ("[journal]", "[drop_copy]\naddress = \"192.0.2.1:1\"\n[journal]", (18, 1), "copies of ilink3 are by FIX"),
    ] {
        let text = ILINK3.replacen(from, to, 1);
        assert_ne!(text, ILINK3, "{from}");
        let (line, column, what) = place(&text);
        assert!(what.contains(word), "{to}: {what}");
        assert_eq!((line, column), at, "{to}: {what}");
    }
}

fn drop_copy_of(text: &str, keys: &str) -> DropCopyConfig {
    let section = format!("[drop_copy]\naddress = \"192.0.2.1:9101\"\n{keys}\n[journal]");
    let config = parse::<Config>(&text.replace("[journal]", &section), Config::check).unwrap();
    config.drop_copy().unwrap()
}

#[test]
fn drop_copy_of_ouch_50_is_its_own_and_has_no_key_of_fix() {
    let config = drop_copy_of(GOOD, "lag_ms = 100");
    assert!(matches!(config.protocol, DropCopyProtocol::Ouch(_)));
    assert_eq!(config.lag, Duration::from_millis(100));
    let text = GOOD.replace("[journal]", "[drop_copy]\naddress = \"192.0.2.1:1\"\nsender = \"FIRM\"\n[journal]");
    assert_eq!(place(&text), (14, 10, "the drop copy of ouch50 has no key `sender`".into()));
}

#[test]
fn drop_copy_of_fix_has_the_names_of_the_venue_but_for_its_own() {
    let DropCopyProtocol::Fix { session, of } = drop_copy_of(FIX, "target = \"DROP\"").protocol else { panic!() };
    assert_eq!((session.sender.as_str(), session.target.as_str()), ("FIRM", "DROP"));
    assert_eq!((session.version, session.heartbeat_s, of), (Version::Fix42, 5, CopiedSession::Fix));
    assert!(session.schedule.is_some());
}

#[test]
fn drop_copies_of_the_others_are_sessions_of_fix_42_by_default() {
    for (text, of) in [
        (BOE.to_owned(), CopiedSession::Boe),
        (ILINK3.to_owned(), CopiedSession::Ilink3),
        (GOOD.replace("ouch50", "ouch42"), CopiedSession::Ouch42),
    ] {
        let keys = "sender = \"FIRM\"\ntarget = \"DROP\"";
        let DropCopyProtocol::Fix { session, of: read } = drop_copy_of(&text, keys).protocol else { panic!() };
        assert_eq!((session.version, read), (Version::Fix42, of));
        let newer = drop_copy_of(&text, &format!("{keys}\nversion = \"fix44\"")).protocol;
        assert!(matches!(newer, DropCopyProtocol::Fix { session, .. } if session.version == Version::Fix44));
    }
}

/// Reads a configuration and the limits beside it, as `check` does.
fn check_both(config: &str, limits: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let [config_path, limits_path] = ["gateway.toml", "limits.toml"].map(|name| folder.path().join(name));
    std::fs::write(&config_path, config.replace("\"limits.toml\"", &format!("{limits_path:?}"))).unwrap();
    std::fs::write(&limits_path, limits).unwrap();
    let error = Config::read_with_limits(&config_path).map(drop).map_err(|error| error.to_string());
    error.map_err(|error| error.replace(folder.path().to_str().unwrap(), ""))
}

fn limits_of(instrument: &str) -> String {
    format!("version = 1\n[[units]]\n[[instruments]]\nsymbol = \"ESZ6\"\n{instrument}")
}

#[test]
fn limits_of_futures_need_the_multiplier_of_each_instrument_and_ilink_3_its_tick() {
    for (text, lacks) in [(BOE, "multiplier"), (ILINK3, "multiplier"), (FIX, ""), (GOOD, "")] {
        match check_both(text, &limits_of("")) {
            Ok(()) => assert_eq!(lacks, "", "{text}"),
            Err(why) => {
                assert!(why.starts_with("/limits.toml line 4, column 10: ESZ6 needs the key `multiplier`"), "{why}")
            }
        }
    }
    assert_eq!(check_both(BOE, &limits_of("multiplier = 50\n")), Ok(()));
    let why = check_both(ILINK3, &limits_of("multiplier = 50\n")).unwrap_err();
    assert!(why.starts_with("/limits.toml line 4, column 10: ESZ6 needs the key `tick`"), "{why}");
    assert_eq!(check_both(ILINK3, &limits_of("multiplier = 50\ntick = 0.25\n")), Ok(()));
    let why = check_both(ILINK3, &limits_of("multiplier = 1000\ntick = 0.015625\n")).unwrap_err();
    assert!(why.starts_with("/limits.toml line 6, column 8: a tick is above 0"), "{why}");
}

#[test]
fn names_that_the_other_file_does_not_have_are_refused_where_they_stand() {
    let quotes = |text: &str, keys: &str| format!("{text}[quotes]\nring = \"cme.ring\"\n{keys}\n");
    let two = limits_of("multiplier = 1\ntick = 1\n[[instruments]]\nsymbol = \"CL\"\nmultiplier = 1\ntick = 1\n");
    for (config, at, word) in [
        (ILINK3.to_owned(), "line 16, column 14", "securities lacks CL of the limits"),
        (quotes(GOOD, "names = { NQZ6 = \"NQ\" }"), "line 16, column 18", "NQZ6 has no limits"),
        (quotes(GOOD, "channels = { NQZ6 = 3 }"), "line 16, column 21", "NQZ6 has no limits"),
        (quotes(GOOD, "names = { ESZ6 = \"CL\" }"), "line 16, column 18", "calls ESZ6 and CL by this name"),
    ] {
        let why = check_both(&config, &two).unwrap_err();
        assert!(why.starts_with(&format!("/gateway.toml {at}: ")) && why.contains(word), "{why}");
    }
    assert_eq!(check_both(&quotes(GOOD, "names = { ESZ6 = \"ES\" }"), &two), Ok(()));
}

#[test]
fn mirror_beside_a_standby_or_without_an_address_is_refused_at_its_section() {
    let config = |sections: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, format!("{GOOD}{sections}")).unwrap();
        let mut config = Config::read(file.path()).unwrap();
        move |by: Option<MirrorConfig>| {
            config.mirror = config.mirror.take().or(by);
            let path = file.path().display().to_string();
            config.check_mirror().map_err(|error| error.to_string().replace(&path, ""))
        }
    };
    let (standby, mirror) = ("[standby]\nlisten = \"192.0.2.1:1\"\n", "[mirror]\nvia = \"eth1\"\n");
    let why = config(&[standby, mirror].concat())(None).unwrap_err();
    assert!(why.starts_with(" line 14, column 1: a gateway has a [standby] or a mirror"), "{why}");
    let why = config(mirror)(None).unwrap_err();
    assert!(why.starts_with(" line 14, column 1: a mirror needs an address"), "{why}");
    // One of the command line has no place.
    let why = config("")(Some(MirrorConfig::new("eth1"))).unwrap_err();
    assert!(why.starts_with("a mirror needs an address"), "{why}");
    assert_eq!(config(&format!("{mirror}address = \"192.0.2.11:9301\"\n"))(None), Ok(()));
    assert_eq!(config(standby)(None), Ok(()));
}

#[test]
fn window_of_requests_without_an_answer_is_that_of_boe_and_else_none_where_it_is_left_out() {
    let config = |text: &str| parse::<Config>(text, Config::check).unwrap();
    assert_eq!([BOE, GOOD].map(|text| config(text).venue.in_flight_max()), [960, usize::MAX]);
    let text = |most: &str| BOE.replacen("primary", &format!("in_flight_max = {most}\nprimary"), 1);
    assert_eq!(config(&text("90")).venue.in_flight_max(), 90);
    assert!(place(&text("0")).2.contains("expected a nonzero u32"), "{}", place(&text("0")).2);
}

#[test]
fn limits_that_leave_self_matches_to_the_venue_need_to_know_how_it_prevents_them() {
    let limits = "version = 1\n[account]\nvenue_prevents_self_match = true\n[[units]]\n[[instruments]]\n\
                  symbol = \"ESZ6\"\nmultiplier = 1\ntick = 1\n";
    for (text, word, is_taken) in [
        (BOE, "cancel-newest", true),
        (BOE, "port", true),
        (GOOD, "port", true),
        (GOOD, "cancel-newest", false),
        (FIX, "cancel-both", false),
        (ILINK3, "cancel-oldest", false),
    ] {
        let why = check_both(text, limits).unwrap_err();
        assert!(why.starts_with("/limits.toml line 3, column 29: this needs the key `self_match`"), "{why}");
        let text = text.replacen("primary", &format!("self_match = \"{word}\"\nprimary"), 1);
        match parse::<Config>(&text, Config::check) {
            Ok(_) => assert_eq!((check_both(&text, limits), is_taken), (Ok(()), true), "{word}"),
            Err(problem) => assert!(!is_taken && problem.what.contains("say no such thing"), "{}", problem.what),
        }
    }
}

#[test]
fn transport_of_wirepath_needs_a_port_and_says_which_keys_are_its_own() {
    let with = |more: &str| GOOD.replace("capacity", &format!("{more}\ncapacity"));
    let whole = with("transport = \"wirepath\"\nvia = \"eth1\"\nlocal_port = 40000\nsecondary = \"192.0.2.2:9100\"");
    let wire = parse::<Config>(&whole, Config::check).unwrap().wire().unwrap();
    assert_eq!((&*wire.via, wire.local_ports, wire.venue.len()), ("eth1", [40_000, 40_001], 2));
    assert_eq!(parse::<Config>(GOOD, Config::check).unwrap().wire().map(|wire| wire.via), None);
    for (more, what) in [
        ("transport = \"wirepath\"\nvia = \"eth1\"", "transport = \"wirepath\" needs the key `local_port` in [venue]"),
        ("transport = \"wirepath\"\nlocal_port = 40000", "transport = \"wirepath\" needs the key `via` in [venue]"),
        (
            "transport = \"wirepath\"\nvia = \"eth1\"\nlocal_port = 0",
            "the port is 1 to 65534, because the one above it is ours too",
        ),
        (
            "transport = \"wirepath\"\nvia = \"eth1\"\nlocal_port = 65535",
            "the port is 1 to 65534, because the one above it is ours too",
        ),
        ("via = \"eth1\"", "`via` of [venue] is for transport = \"wirepath\""),
        ("transport = \"kernel\"\nlocal_port = 4", "`local_port` of [venue] is for transport = \"wirepath\""),
    ] {
        assert_eq!(place(&with(more)).2, what);
    }
}
