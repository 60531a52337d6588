//! A writer of a stream hangs, another takes over, and the first is refused from then on.

use std::time::Duration;

use tenure_client::{Client, Refusal, Session, Verdict};

use super::{Stage, Wrong, check};

const CACHE: &str = "writers";
const STREAM: &str = "orders";
const ROLE: &str = "orders/writer";
const TTL: Duration = Duration::from_secs(10);
/// Records that each writer appends.
const RECORDS: u64 = 3;

/// A writer that has the role.
struct Writer {
    name: &'static str,
    session: Session,
    token: u64,
    next: u64,
}

pub(super) async fn play(stage: &mut Stage<'_>) -> Result<String, Wrong> {
    stage.client.create_cache(CACHE).await?.done()?;
    stage.client.stream(STREAM).create().fence_mandatory().await?.done()?;
    let mut old = Writer::with_role(&stage.client, "old").await?;
    for _ in 0..RECORDS {
        let appended = old.append(&stage.client).await?;
        check(appended.is_done(), || {
            format!("the only writer was refused: {appended:?}")
        })?;
    }
    stage.say(&format!(
        "the old writer appends {RECORDS} records under token {}, and hangs",
        old.token
    ))?;
    // Its session ends as it would by itself in a while; an operator was faster.
    stage.client.force_close_session(old.session.id()).await?;
    let mut new = Writer::with_role(&stage.client, "new").await?;
    check(new.token > old.token, || {
        format!("token {} follows {}", new.token, old.token)
    })?;
    let sealed = stage.client.stream(STREAM).seal(new.token).await?.done()?;
    check(sealed.first == RECORDS, || {
        format!("the stream was sealed at {}", sealed.first)
    })?;
    new.next = sealed.first;
    stage.say(&format!(
        "the new one has token {}, and seals the stream with it at offset {}",
        new.token, new.next
    ))?;

    let refused = old.append(&stage.client).await?;
    let expected = Refusal::StaleToken { current: new.token };
    check(refused.refusal() == Some(&expected), || {
        format!("the old writer was told {refused:?}")
    })?;
    stage.say("the old writer wakes and appends: refused, although the offset it expects is right")?;
    for _ in 0..RECORDS {
        let appended = new.append(&stage.client).await?;
        check(appended.is_done(), || {
            format!("the new writer was refused: {appended:?}")
        })?;
    }
    let page = stage.client.stream(STREAM).read().from_earliest().await?;
    let offsets: Vec<u64> = page.records.iter().map(|record| record.offset).collect();
    check(offsets.iter().copied().eq(0..2 * RECORDS), || {
        format!("the offsets are {offsets:?}")
    })?;
    let is_of_its_time = |record: &tenure_client::Record| {
        let writer = if record.offset < RECORDS { &old } else { &new };
        record.fence_token == Some(writer.token) && record.data.starts_with(writer.name.as_bytes())
    };
    check(page.records.iter().all(is_of_its_time), || {
        "a record is of the other writer".to_owned()
    })?;
    new.session.close().await?;
    Ok(format!(
        "the old writer was refused by token {}; offsets 0 to {} without a gap, the first {RECORDS} of the old writer, \
         the others of the new one",
        new.token,
        2 * RECORDS - 1
    ))
}

impl Writer {
    /// Claims the role, which must be free.
    async fn with_role(client: &Client, name: &'static str) -> Result<Writer, Wrong> {
        let session = client.open_session(TTL).label(name).await?;
        let claim = client.cache(CACHE).put(ROLE, name).if_absent().owner(&session).await?;
        match claim {
            Verdict::Done(claim) => Ok(Writer {
                name,
                session,
                token: claim.token(),
                next: 0,
            }),
            Verdict::Refused(refused) => Err(Wrong::Story(format!("the role was not free: {refused}"))),
        }
    }

    /// Appends its next record where it believes the stream to end.
    async fn append(&mut self, client: &Client) -> Result<Verdict<tenure_client::Appended>, Wrong> {
        let record = format!("{} order at {}", self.name, self.next);
        let append = client.stream(STREAM).append([record]);
        let appended = append.if_offset(self.next).fence_token(self.token).await?;
        if let Verdict::Done(done) = &appended {
            self.next = done.next();
        }
        Ok(appended)
    }
}
