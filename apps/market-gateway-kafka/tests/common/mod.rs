//! The brokers that librdkafka has for tests, in a process of their own, and a ring to publish.
#![allow(dead_code, reason = "each user needs its own part")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

#[path = "../../../market-gateway-nats/tests/common/ring.rs"]
mod ring;

pub(crate) use ring::{Ring, record};

/// Three brokers that keep all in memory, and make the topics that they are asked for, each with
/// four partitions. They end when nobody can write to their standard input any more.
const BROKERS: &str = "
import sys
from confluent_kafka import Producer
cluster = Producer({'test.mock.num.brokers': 3, 'bootstrap.servers': 'unused:1'})
brokers = cluster.list_topics(timeout=60).brokers.values()
print(','.join(f'{broker.host}:{broker.port}' for broker in brokers), flush=True)
sys.stdin.read()
";

pub(crate) struct Cluster {
    child: Child,
    servers: Vec<String>,
}

impl Cluster {
    /// `None`, and a word why, where there is no librdkafka here.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", BROKERS]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut line = String::new();
        let child = command.spawn().ok().map(|mut child| {
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            child
        });
        let servers: Vec<String> =
            line.trim().split(',').filter(|server| !server.is_empty()).map(str::to_owned).collect();
        let cluster = child.map(|child| Self { child, servers }).filter(|cluster| !cluster.servers.is_empty());
        if cluster.is_none() {
            println!("SKIPPED {test}: no brokers of librdkafka here; install the package python3-confluent-kafka");
        }
        cluster
    }

    pub(crate) fn servers(&self) -> &[String] {
        &self.servers
    }

    /// Takes connections and bytes, and answers nothing, until [`go_on`](Self::go_on).
    pub(crate) fn stand_still(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
    }

    pub(crate) fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
