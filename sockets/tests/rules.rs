//! The file of rules in the documentation decides as its comments say.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::path::Path;

use sockets::rules::{Query, Role, Rules, Traffic};

#[test]
fn example_of_the_documentation_decides_as_it_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/socket-rules.toml");
    let rules = Rules::load(&path).unwrap();
    let check = |program: &str, traffic, local: &str, remote: &str, expected: (Role, &str)| {
        let (program, application_id) = program.split_once('#').map_or((program, None), |(name, id)| (name, Some(id)));
        let remote = (!remote.is_empty()).then(|| remote.parse().unwrap());
        let query = Query { program, application_id, traffic, local: local.parse().unwrap(), remote };
        let decision = rules.role(&query);
        assert_eq!((decision.role, decision.why), expected, "{query:?}");
    };
    let (server, client) = (Traffic::TcpServer, Traffic::TcpClient);
    check("node_exporter", server, "0.0.0.0:9100", "", (Role::Os, "rule 1 of socket-rules.toml"));
    check("engine", client, "0.0.0.0:0", "198.51.100.7:5000", (Role::Refuse, "rule 2 of socket-rules.toml"));
    check("redis-server", server, "0.0.0.0:6379", "", (Role::Both, "rule 1 of redis-* in socket-rules.toml"));
    check("redis-server", server, "0.0.0.0:16379", "", (Role::Os, "default of redis-* in socket-rules.toml"));
    let group = "239.1.7.7:30500";
    let of_engine = (Role::Offload, "rule 1 of engine in socket-rules.toml");
    check("engine#B1", Traffic::UdpReceiver, group, "", of_engine);
    check("engine", Traffic::UdpReceiver, group, "", (Role::Offload, "default of socket-rules.toml"));
    check("engine", Traffic::UdpConnect, "0.0.0.0:0", "192.0.2.53:53", (Role::Os, "DNS is the kernel's"));
}
