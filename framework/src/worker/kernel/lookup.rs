//! Flattens the kernel's policy routing into one list for one interface: rules select tables, and
//! the first table with a route to the destination decides; a [`Host`](crate::proto::Host) has one
//! list, in which the longest prefix decides.
//!
//! The list gives the kernel's result for a socket that is bound to the interface and to the
//! address it sends from, without mark and with type of service zero. There is one exception: for
//! such a socket the kernel considers a destination without a route to be on the link, and here it
//! has no route. A route of a later table is left out if a route of an earlier table covers it.
//! Longer prefixes win without further work, because networks either contain each other or are
//! disjoint. If the kernel has a hole (blackhole, unreachable, prohibit), the routes around it are
//! split into the networks that remain.
//!
//! Left out: rules that match a mark, a port, a user or an input interface, VRFs, and the host's
//! addresses on other interfaces, to which the kernel would deliver locally.

use std::net::Ipv4Addr;

use super::tables::{KernelRoute, LinkIdx, RouteKind, RouteNextHop, Rule, RuleAction, Tables};
use crate::proto::{Ipv4Prefix, Route};

/// Networks that one route may be split into. Each hole makes up to 32 pieces. Where the holes
/// would make more, the host gets no such route: better to send too little than into a hole.
const PIECES_MAX: usize = 1024;

/// The routes out of the interface, in any order. `name` is the interface's, `own` its addresses,
/// the primary one first.
pub(super) fn routes(tables: &Tables, link: LinkIdx, name: &str, own: &[Ipv4Prefix]) -> Vec<Route> {
    let mut seen = Vec::new();
    let rules = tables.rules();
    let mut idx = 0;
    while let Some(rule) = rules.get(idx) {
        idx += 1;
        let Some(rule) = &about_addresses(rule, name) else { continue };
        match rule.action {
            RuleAction::Nothing => {}
            // A target is always behind, or the kernel would have refused the rule. If the rule has
            // a condition on addresses, the jump depends on the packet, and is not taken.
            RuleAction::Goto(priority) if is_unconditional(rule) => {
                idx = idx.max(rules.partition_point(|held| held.priority < priority));
            }
            RuleAction::Goto(_) => {}
            RuleAction::Hole => {
                if means_us(rule, own) {
                    add_layer(&mut seen, rule_networks(rule, vec![RouteEntry { network: Ipv4Prefix::ALL, way: None }]));
                }
            }
            RuleAction::Table(table) => {
                let entries = table_entries(tables, table, rule, link, own);
                add_layer(&mut seen, rule_networks(rule, entries));
            }
        }
    }
    seen.into_iter().filter_map(|entry| entry.way.map(|way| Route { network: entry.network, ..way })).collect()
}

/// A network, and its route; None for a hole.
#[derive(Clone, Copy)]
struct RouteEntry {
    network: Ipv4Prefix,
    way: Option<Route>,
}

/// The part of a rule that depends on addresses, after all its other conditions were checked; None
/// if the rule matches none of our packets.
fn about_addresses(rule: &Rule, name: &str) -> Option<Rule> {
    let fits = !rule.special && rule.bound_to.as_deref().is_none_or(|bound| bound == name);
    match (fits, rule.inverted) {
        (true, false) => Some(rule.clone()),
        (false, false) => None,
        // `not` inverts the whole condition: a part that never matches makes the rule match
        // everything.
        (false, true) => Some(Rule { from: None, to: None, inverted: false, ..rule.clone() }),
        (true, true) => (!is_unconditional(rule)).then(|| rule.clone()),
    }
}

fn is_unconditional(rule: &Rule) -> bool {
    rule.from.is_none() && rule.to.is_none()
}

/// Whether a rule matches packets from `source`. A rule with `not` and a destination depends on the
/// destination.
fn sends_from(rule: &Rule, source: Ipv4Addr) -> bool {
    let Some(from) = rule.from else { return true };
    if rule.inverted && rule.to.is_some() { true } else { from.contains(source) != rule.inverted }
}

/// Whether a rule's holes apply to us: they have no source, so the primary address decides for all.
fn means_us(rule: &Rule, own: &[Ipv4Prefix]) -> bool {
    own.first().is_some_and(|first| sends_from(rule, first.address()))
}

/// The entries restricted to a rule's destination.
fn rule_networks(rule: &Rule, entries: Vec<RouteEntry>) -> Vec<RouteEntry> {
    let Some(to) = rule.to else { return entries };
    if rule.inverted {
        let cut = |entry: RouteEntry| {
            without(entry.network, &[to]).into_iter().map(move |network| RouteEntry { network, ..entry })
        };
        return entries.into_iter().filter(|entry| !covers(to, entry.network)).flat_map(cut).collect();
    }
    // Entries inside it are kept; of those around it the longest is kept, restricted to `to`.
    let around = entries.iter().filter(|entry| covers(entry.network, to)).map(|entry| entry.network.len()).max();
    let clip = |entry: RouteEntry| match entry.network {
        network if network.len() > to.len() && covers(to, network) => Some(entry),
        network if covers(network, to) && Some(network.len()) == around => {
            Some(RouteEntry { network: to, way: entry.way })
        }
        _ => None,
    };
    entries.into_iter().filter_map(clip).collect()
}

/// The entries of a table for packets out of this interface, without its holes and without its
/// `throw` routes, which pass a network to the next table.
fn table_entries(tables: &Tables, table: u32, rule: &Rule, link: LinkIdx, own: &[Ipv4Prefix]) -> Vec<RouteEntry> {
    let (mut entries, mut gaps) = (Vec::new(), Vec::new());
    for routes in tables.networks(table) {
        let network = routes[0].network;
        if rule.suppressed_len.is_some_and(|len| network.len() <= len) {
            continue;
        }
        // The smallest metric wins, and of equal ones the first. The others stay in the tables here
        // until they win: the worker does not need them.
        let mut by_metric: Vec<&KernelRoute> = routes.iter().filter(|route| route.tos == 0).collect();
        by_metric.sort_by_key(|route| route.metric);
        for route in by_metric {
            let way = match route.kind {
                RouteKind::Other => continue,
                RouteKind::Throw => None,
                RouteKind::Hole => {
                    entries.extend(means_us(rule, own).then_some(RouteEntry { network, way: None }));
                    None
                }
                RouteKind::Unicast => {
                    let way = way(tables, route, link, own).filter(|way| sends_from(rule, way.source));
                    if way.is_none() {
                        continue;
                    }
                    way
                }
            };
            match way {
                Some(_) => entries.push(RouteEntry { network, way }),
                None => gaps.push(network),
            }
            break;
        }
    }
    cut(&entries, &gaps)
}

/// The next hop of a route out of this interface.
fn way(tables: &Tables, route: &KernelRoute, link: LinkIdx, own: &[Ipv4Prefix]) -> Option<Route> {
    let RouteNextHop { gateway, .. } = *route.legs.iter().find(|leg| leg.link == link)?;
    let source = match route.source {
        Some(source) if own.iter().any(|own| own.address() == source) || tables.is_own(source) => source,
        _ => source_towards(gateway, own)?,
    };
    Some(Route { network: route.network, gateway, source, metric: route.metric })
}

/// The one of our addresses that shares a network with the router, otherwise the first
/// (inet_select_addr).
fn source_towards(gateway: Option<Ipv4Addr>, own: &[Ipv4Prefix]) -> Option<Ipv4Addr> {
    let near = gateway.and_then(|gateway| own.iter().find(|own| own.contains(gateway)));
    near.or(own.first()).map(|own| own.address())
}

/// Adds a later rule's entries to those that earlier ones decided.
fn add_layer(seen: &mut Vec<RouteEntry>, layer: Vec<RouteEntry>) {
    let holes: Vec<_> = seen.iter().filter(|known| known.way.is_none()).map(|known| known.network).collect();
    let mut new = cut(&layer, &holes);
    new.retain(|entry| !seen.iter().any(|known| covers(known.network, entry.network)));
    seen.extend(new);
}

/// Cuts the gaps out of one table's entries. A remaining piece can have the length of an entry
/// inside the network it was cut from; that entry has precedence.
fn cut(entries: &[RouteEntry], gaps: &[Ipv4Prefix]) -> Vec<RouteEntry> {
    let mut remaining = Vec::new();
    for entry in entries {
        let inside = |gap: &&Ipv4Prefix| gap.len() > entry.network.len() && covers(entry.network, **gap);
        let gaps: Vec<_> = gaps.iter().filter(inside).copied().collect();
        if gaps.is_empty() {
            remaining.push(*entry);
            continue;
        }
        let mut pieces = without(entry.network, &gaps);
        pieces.retain(|piece| {
            let closer =
                |other: &RouteEntry| other.network.len() > entry.network.len() && covers(other.network, *piece);
            !entries.iter().any(closer)
        });
        remaining.extend(pieces.into_iter().map(|network| RouteEntry { network, ..*entry }));
    }
    remaining
}

/// The rest of a network without some networks inside it, as few networks as possible.
fn without(network: Ipv4Prefix, holes: &[Ipv4Prefix]) -> Vec<Ipv4Prefix> {
    let mut pieces = vec![network];
    for hole in holes {
        let Some(idx) = pieces.iter().position(|piece| covers(*piece, *hole)) else {
            pieces.retain(|piece| !covers(*hole, *piece));
            continue;
        };
        let around = pieces.swap_remove(idx);
        // Along the path from the network down to the hole, the other half at each step remains.
        for len in around.len() + 1..=hole.len() {
            let other = hole.address().to_bits() ^ 1 << (32 - u32::from(len));
            pieces.extend(Ipv4Prefix::new(Ipv4Addr::from_bits(other), len).map(Ipv4Prefix::network));
        }
        if pieces.len() > PIECES_MAX {
            return Vec::new();
        }
    }
    pieces
}

fn covers(outer: Ipv4Prefix, inner: Ipv4Prefix) -> bool {
    outer.len() <= inner.len() && outer.contains(inner.address())
}
