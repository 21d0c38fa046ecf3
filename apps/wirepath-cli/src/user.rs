//! Users of this machine, by name or number.

use sockets::rules::Names;

use crate::root::Root;

/// A user, as /etc/passwd has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    /// The user's own group; for a number without an entry the group of the same number.
    pub(crate) gid: u32,
}

/// The numbers of names of users and groups, for files of rules.
pub(crate) struct Numbers<'a>(pub(crate) &'a Root);

impl Names for Numbers<'_> {
    fn user(&self, name: &str) -> Option<u32> {
        number_of(&self.0.read("etc/passwd")?, name)
    }

    fn group(&self, name: &str) -> Option<u32> {
        number_of(&self.0.read("etc/group")?, name)
    }
}

/// The third field of the line whose first one is `name`, as /etc/passwd and /etc/group have it.
fn number_of(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        fields.next().filter(|first| *first == name)?;
        fields.nth(1)?.parse().ok()
    })
}

/// The user of this name or number.
pub(crate) fn find(root: &Root, text: &str) -> Result<User, String> {
    let passwd = root.read("etc/passwd").unwrap_or_default();
    let mut entries = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, uid, gid) = (fields.next()?, fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some((name, User { uid, gid }))
    });
    let number = text.parse().ok();
    let found = entries.find(|(name, user)| *name == text || Some(user.uid) == number).map(|(_, user)| user);
    found
        .or_else(|| number.map(|uid| User { uid, gid: uid }))
        .ok_or_else(|| format!("there is no user {text} in /etc/passwd: name one that is there, or give its number"))
}
