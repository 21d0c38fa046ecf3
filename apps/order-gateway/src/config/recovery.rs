//! `[rerequest]` and `[image]`: the servers of the feed, with the keys that feed-handler has.

use feed_handler::config::ConfigProblem;
use feed_handler::config::recovery::{image, requests};
use feed_handler::format::Format;
use feed_handler::recovery::RecoveryPlan;

use super::{Config, Problem};

const FORMAT: Format = Format::MoldItch50;

/// Servers without a feed are a mistake: `[quotes]` are recovered where the ring is written.
pub(super) fn check(config: &Config) -> Result<(), Problem> {
    let sections = [config.rerequest.as_ref().map(|it| it.span()), config.image.as_ref().map(|it| it.span())];
    if let (Some(span), true) = (sections.into_iter().flatten().next(), config.feed.is_empty()) {
        return Err(Problem::new(span, "this is the server of a [[feed]], and there is none: omit this"));
    }
    plan(config).map(drop)
}

pub(super) fn plan(config: &Config) -> Result<RecoveryPlan, Problem> {
    let problem = |ConfigProblem { at, what }| Problem::new(at, what);
    Ok(RecoveryPlan {
        requests: config.rerequest.as_ref().map(|own| requests(own, FORMAT)).transpose().map_err(problem)?,
        image: config.image.as_ref().map(|own| image(own, FORMAT, 1)).transpose().map_err(problem)?,
        loops: None,
    })
}
