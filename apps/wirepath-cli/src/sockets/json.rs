//! The report as JSON: one object with an array of processes, and in each an array of its sockets.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use sockets::listing::{Entry, Group, Process};
use wirepath::proto::FilterMode;

use super::table::protocol;

/// One object and a newline.
pub(super) fn render(processes: &[Process]) -> String {
    let processes: Vec<Value> = processes.iter().map(process).collect();
    format!("{}\n", json!({ "processes": processes }))
}

fn process(process: &Process) -> Value {
    let header = &process.header;
    let calls = header.system_calls.by_cause().map(|(cause, count)| (cause.to_owned(), Value::from(count)));
    json!({
        "program": header.program,
        "pid": process.pid,
        "user": process.user,
        "credible": process.is_credible,
        "interface": header.interface,
        "started_unix_seconds": seconds(process.started),
        "turns": header.turns,
        "turns_with_packets": header.turns_with_packets,
        "keeper_turns": header.keeper_turns,
        "lock_contended": header.contended,
        "sleeps": header.sleeps,
        "wakeups": header.wakeups,
        "system_calls": Map::from_iter(calls),
        "unlisted": header.unlisted,
        "dropped": header.dropped,
        "lent_queues": header.lent.iter().map(|queue| json!({ "send": queue.send, "receive": queue.receive })).collect::<Vec<_>>(),
        "sockets": process.sockets.iter().map(socket).collect::<Vec<_>>(),
    })
}

fn socket(entry: &Entry<'_>) -> Value {
    json!({
        "fd": entry.fd,
        "protocol": protocol(entry.kind),
        "state": entry.state.as_str(),
        "whose": entry.place.as_str(),
        "why": entry.why,
        "local": entry.local.to_string(),
        "remote": entry.remote.map(|remote| remote.to_string()),
        "rx_bytes": entry.rx_bytes,
        "rx_packets": entry.rx_packets,
        "tx_bytes": entry.tx_bytes,
        "tx_packets": entry.tx_packets,
        "receive_queue": entry.receive_queue,
        "receive_limit": entry.receive_limit,
        "send_queue": entry.send_queue,
        "drops": entry.drops,
        "retransmits": entry.retransmits,
        "receive_queue_max": entry.receive_queue_max,
        "would_block": entry.would_block,
        "twin_reads": entry.twin_reads,
        "groups": entry.groups.iter().map(group).collect::<Vec<_>>(),
        "groups_count": entry.groups_count,
        "epoll_sets": entry.epoll_sets,
        "engine": entry.engine,
        "opened_unix_seconds": seconds(entry.opened),
        "active_unix_seconds": seconds(entry.active),
    })
}

fn group(group: &Group) -> Value {
    let mode = if group.mode == FilterMode::Include { "include" } else { "exclude" };
    json!({ "address": group.address.to_string(), "mode": mode, "sources": group.sources })
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
