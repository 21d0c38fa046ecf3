//! Users of this machine, by name or number.

use crate::root::Root;

/// A user, as /etc/passwd has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    /// The user's own group; for a number without an entry the group of the same number.
    pub(crate) gid: u32,
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
