//! `[quotes]`: the ring of a market-gateway, and the names of its feed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use market::Symbol;
use serde::Deserialize;
use toml::Spanned;

use super::Problem;

/// The section.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuotesSection {
    /// The ring in shared memory.
    ring: PathBuf,
    /// What the feed calls an instrument where that is not its symbol. By default nothing.
    #[serde(default)]
    names: BTreeMap<String, Spanned<String>>,
    /// The channel of the ring that an instrument comes by, where several have its name. By default
    /// nothing: one that two channels bring stays stale.
    #[serde(default)]
    channels: BTreeMap<String, Spanned<u16>>,
}

impl QuotesSection {
    pub(super) fn check(&self) -> Result<(), Problem> {
        let mut names: Vec<_> = self.names.values().collect();
        names.sort_by_key(|name| name.span().start);
        let mut known = Vec::new();
        for name in names {
            let Some(symbol) = feed_name(name.get_ref()) else {
                let what = "a feed calls an instrument by 1 to 8 bytes, or by # and a number, such as \"#5485\" (CME)";
                return Err(Problem::new(name.span(), what));
            };
            if known.contains(&symbol) {
                let what = format!("{:?} is the feed's name of another instrument already", name.get_ref());
                return Err(Problem::new(name.span(), what));
            }
            known.push(symbol);
        }
        Ok(())
    }

    /// Each name and each channel is of one of these instruments, and the feed calls no two of them
    /// by one name: that of one may be the other's symbol.
    pub(super) fn check_names(&self, symbols: &[Symbol]) -> Result<(), Problem> {
        let named = self.names.iter().map(|(name, value)| (name, value.span()));
        let mut all = named.chain(self.channels.iter().map(|(name, value)| (name, value.span())));
        if let Some((name, at)) = all.find(|(name, _)| !symbols.iter().any(|symbol| symbol.as_str() == *name)) {
            let what = format!("{name} has no limits: add [[instruments]] with this symbol, or omit this");
            return Err(Problem::new(at, what));
        }
        let (_, feed_names) = self.names(symbols);
        for (idx, name) in feed_names.iter().enumerate() {
            let Some(other) = feed_names[..idx].iter().position(|earlier| earlier == name) else { continue };
            let (one, other) = (symbols[other], symbols[idx]);
            let what = format!("the feed calls {one} and {other} by this name: give each one of its own");
            // One of both has it for its symbol, and the other by the section.
            let at = [one, other].into_iter().find_map(|symbol| self.names.get(symbol.as_str()));
            return Err(Problem::new(at.map_or(0..0, Spanned::span), what));
        }
        Ok(())
    }

    /// The channel of each of these instruments that one is said of.
    pub(super) fn channels(&self, symbols: &[Symbol]) -> Vec<Option<u16>> {
        let of = |symbol: &Symbol| self.channels.iter().find(|(name, _)| Symbol::new(name) == Some(*symbol));
        symbols.iter().map(|symbol| of(symbol).map(|(_, channel)| *channel.get_ref())).collect()
    }

    pub(super) fn names(&self, symbols: &[Symbol]) -> (PathBuf, Vec<Symbol>) {
        let name = |symbol: &Symbol| {
            let named = self.names.iter().find(|(name, _)| Symbol::new(name) == Some(*symbol));
            named.and_then(|(_, name)| feed_name(name.get_ref())).unwrap_or(*symbol)
        };
        (self.ring.clone(), symbols.iter().map(name).collect())
    }
}

/// A name, or the number of an instrument that its feed knows by number.
fn feed_name(text: &str) -> Option<Symbol> {
    match text.strip_prefix('#') {
        Some(number) => number.parse::<u32>().ok().map(|number| Symbol::from_number(number.into())),
        None => Symbol::new(text).filter(|symbol| *symbol != Symbol::NONE),
    }
}
