//! `[[channels]]`: lines that carry the same messages, and the servers for what they lose.

use std::net::SocketAddrV4;

use market::truth::Group;
use serde::Deserialize;
use toml::Spanned;

use super::loops::{self, LoopsSection};
use super::problem::ConfigProblem;
use super::recovery::{self, ImageSection, RerequestSection};
use super::words::{Port, Sender, Vlan};
use crate::feed::{FeedLine, NUMBERS_MAX, SetConfig};
use crate::format::Format;
use crate::recovery::RecoveryPlan;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChannelSection {
    pub(super) name: Spanned<String>,
    pub(super) format: Spanned<Format>,
    pub(super) queue: Option<Spanned<u16>>,
    pub(super) numbers: Option<Spanned<Vec<Spanned<u32>>>>,
    pub(super) lines: Spanned<Vec<LineSection>>,
    pub(super) rerequest: Option<Spanned<RerequestSection>>,
    pub(super) image: Option<Spanned<ImageSection>>,
    pub(super) loops: Option<Spanned<LoopsSection>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LineSection {
    pub(super) name: Option<String>,
    pub(super) group: Spanned<Group>,
    pub(super) port: Port,
    #[serde(default)]
    pub(super) sources: Vec<Sender>,
    pub(super) vlan: Option<Spanned<Vlan>>,
}

/// A format of packets.
pub(super) fn check_format(section: &ChannelSection) -> Result<(), ConfigProblem> {
    if *section.format.get_ref() == Format::Itch50File {
        let what = "a plain file has no channels: leave them out and use --format itch50-file";
        return Err(ConfigProblem::new(section.format.span(), what));
    }
    Ok(())
}

/// Each number is a channel with its own books.
pub(super) fn check_numbers(section: &ChannelSection) -> Result<(), ConfigProblem> {
    let Some(numbers) = &section.numbers else { return Ok(()) };
    let format = *section.format.get_ref();
    let Some(most) = format.channel_number_max() else {
        let what = format!("packets of {format} have no channel number: leave this out");
        return Err(ConfigProblem::new(numbers.span(), what));
    };
    let count = numbers.get_ref().len();
    if count == 0 || count > NUMBERS_MAX {
        let what =
            format!("{count} channel numbers: name 1 to {NUMBERS_MAX}, or leave this out for the first that comes");
        return Err(ConfigProblem::new(numbers.span(), what));
    }
    for (idx, number) in numbers.get_ref().iter().enumerate() {
        if *number.get_ref() > most {
            let what =
                format!("{} is out of range for a channel number of {format}: use 0 to {most}", number.get_ref());
            return Err(ConfigProblem::new(number.span(), what));
        }
        if numbers.get_ref()[..idx].iter().any(|other| other.get_ref() == number.get_ref()) {
            return Err(ConfigProblem::new(
                number.span(),
                format!("channel number {} is named twice", number.get_ref()),
            ));
        }
    }
    Ok(())
}

impl ChannelSection {
    /// Channels that it names.
    pub(super) fn count(&self) -> usize {
        self.numbers.as_ref().map_or(1, |numbers| numbers.get_ref().len())
    }

    /// The servers, or what is wrong with them.
    pub(super) fn recovery(&self) -> Result<RecoveryPlan, ConfigProblem> {
        let format = *self.format.get_ref();
        Ok(RecoveryPlan {
            requests: self.rerequest.as_ref().map(|section| recovery::requests(section, format)).transpose()?,
            image: self.image.as_ref().map(|section| recovery::image(section, format, self.count())).transpose()?,
            loops: self.loops.as_ref().map(|section| loops::plan(section, format)).transpose()?,
        })
    }

    pub(super) fn set(&self) -> SetConfig {
        let letters = ('A'..).map(String::from);
        let lines = self.lines.get_ref().iter().zip(letters).map(|(line, letter)| FeedLine {
            name: line.name.clone().unwrap_or(letter),
            group: line.address(),
            vlan: line.vlan(),
            senders: line.sources.iter().map(|sender| sender.0).collect(),
        });
        let queue = self.queue.as_ref().map(|queue| *queue.get_ref());
        let numbers =
            self.numbers.iter().flat_map(|numbers| numbers.get_ref()).map(|number| *number.get_ref()).collect();
        // It was checked when the file was read.
        let recovery = self.recovery().unwrap_or_default();
        let (name, format) = (self.name.get_ref().clone(), *self.format.get_ref());
        SetConfig { name, format, queue, numbers, lines: lines.collect(), recovery }
    }
}

impl LineSection {
    pub(super) fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.group.get_ref().address(), self.port.0)
    }

    pub(super) fn vlan(&self) -> Option<u16> {
        self.vlan.as_ref().map(|vlan| vlan.get_ref().0)
    }
}
