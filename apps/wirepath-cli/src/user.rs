//! Users of this machine, by name or number.

use sockets::rules::Names;

use crate::root::Root;

/// A user, as /etc/passwd and /etc/group have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    /// The user's own group; for a number without an entry the group of the same number.
    pub(crate) gid: u32,
    /// All groups, the own one first.
    pub(crate) groups: Vec<u32>,
    /// `None` of a number without an entry.
    pub(crate) account: Option<Account>,
}

/// What a program learns about its user from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) home: String,
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
    let number = text.parse().ok();
    let found = passwd.lines().filter_map(entry).find(|(uid, _, account)| account.name == text || Some(*uid) == number);
    if let Some((uid, gid, account)) = found {
        let groups = root.read("etc/group").unwrap_or_default();
        let mut groups: Vec<u32> = groups_of(&groups, &account.name).filter(|group| *group != gid).collect();
        groups.insert(0, gid);
        return Ok(User { uid, gid, groups, account: Some(account) });
    }
    number
        .map(|uid| User { uid, gid: uid, groups: vec![uid], account: None })
        .ok_or_else(|| format!("there is no user {text} in /etc/passwd: name one that is there, or give its number"))
}

/// A line of /etc/passwd (passwd(5)): the numbers of the user and of the own group, and the rest.
fn entry(line: &str) -> Option<(u32, u32, Account)> {
    let fields: Vec<&str> = line.split(':').collect();
    let &[name, _, uid, gid, _, home, ..] = fields.as_slice() else { return None };
    Some((uid.parse().ok()?, gid.parse().ok()?, Account { name: name.into(), home: home.into() }))
}

/// The groups that name a user among their members, as in /etc/group (group(5)).
fn groups_of<'a>(text: &'a str, user: &'a str) -> impl Iterator<Item = u32> + 'a {
    text.lines().filter_map(move |line| {
        let mut fields = line.split(':').skip(2);
        let (gid, members) = (fields.next()?.parse().ok()?, fields.next()?);
        members.split(',').any(|member| member.trim() == user).then_some(gid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_has_the_groups_that_name_it_and_a_number_its_own_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join("etc").join(name), text).unwrap();
        write("passwd", "root:x:0:0:root:/root:/bin/sh\ntrader:x:1000:100:T:/home/t:/bin/sh\n");
        write("group", "users:x:100:trader\ntrading:x:200:x,trader\nothers:x:300:traders\nempty:x:400:\n");
        let root = Root::new(Some(folder.path()));
        let account = Some(Account { name: "trader".into(), home: "/home/t".into() });
        let trader = User { uid: 1000, gid: 100, groups: vec![100, 200], account };
        assert_eq!(find(&root, "trader"), Ok(trader.clone()));
        assert_eq!(find(&root, "1000"), Ok(trader));
        assert_eq!(find(&root, "7"), Ok(User { uid: 7, gid: 7, groups: vec![7], account: None }));
        assert!(find(&root, "nobody-here").is_err());
    }
}
