//! A phone posts a payment twice, and it is charged once.

use std::time::Duration;

use tenure_client::{ChangeKind, Client, Guard, Operation, TxnGuard, Verdict, WatchItem};

use super::{Stage, Wrong, check};

const CACHE: &str = "payments";
const KEY: &str = "idempotency/5f1c9a";
const LEDGER: &str = "ledger";
const CENTS: i64 = 1_250;
/// How long a session of a server lives.
const TTL: Duration = Duration::from_secs(10);
/// How long an answer is kept for whoever posts again.
const KEPT: Duration = Duration::from_secs(24 * 3_600);
const RUNNING: &[u8] = b"running";

/// The answer to a post.
struct Answered {
    receipt: String,
    /// Whether this post was the one that charged.
    charged: bool,
}

pub(super) async fn play(stage: &mut Stage<'_>) -> Result<String, Wrong> {
    stage.client.create_cache(CACHE).await?.done()?;
    stage.client.stream(LEDGER).create().await?.done()?;
    stage.say("the connection breaks, so the phone posts the payment again: two servers get it at once")?;
    let (one, other) = tokio::join!(
        post(stage.client.clone(), "server-1"),
        post(stage.client.clone(), "server-2")
    );
    let (one, other) = (one?, other?);
    check(one.charged != other.charged, || {
        format!(
            "charged by the first: {}, by the second: {}",
            one.charged, other.charged
        )
    })?;
    check(one.receipt == other.receipt, || {
        format!("the receipts are {:?} and {:?}", one.receipt, other.receipt)
    })?;
    stage.say(&format!("one of them charges; both answer with {:?}", one.receipt))?;
    let late = post(stage.client.clone(), "server-3").await?;
    check(!late.charged && late.receipt == one.receipt, || {
        format!("a later post was answered {:?}", late.receipt)
    })?;
    let charged = stage.client.cache(CACHE).counter("charged-cents").await?;
    check(charged == Some(CENTS), || format!("{charged:?} cents were charged"))?;
    let ledger = stage.client.stream(LEDGER).read().await?;
    check(ledger.records.len() == 1, || {
        format!("the ledger has {} records", ledger.records.len())
    })?;
    Ok(format!(
        "three posts, one charge of {CENTS} cents, one record in the ledger, and the same receipt for all"
    ))
}

/// What a server does with a post: it claims the payment's key, charges, and leaves the receipt in place of the claim.
async fn post(client: Client, server: &str) -> Result<Answered, Wrong> {
    let payments = client.cache(CACHE);
    let session = client.open_session(TTL).label(server).await?;
    let claim = payments.put(KEY, RUNNING).if_absent().owner(&session).await?;
    let answered = match claim {
        Verdict::Refused(_) => Answered {
            receipt: receipt_of_the_other(&client).await?,
            charged: false,
        },
        Verdict::Done(claim) => {
            let receipt = format!("receipt {} by {server}", claim.token());
            // Charge, ledger and receipt in one step, and only while the claim is still this server's.
            let outcome = client
                .txn()
                .when(TxnGuard::key(CACHE, KEY, Guard::Version(claim.version)))
                .then(Operation::add(CACHE, "charged-cents", CENTS))
                .then(Operation::append(LEDGER, [&receipt]))
                .then(Operation::put(CACHE, KEY, &receipt).ttl(KEPT))
                .await?
                .done()?;
            check(outcome.applied, || {
                "the claim was lost while the payment ran".to_owned()
            })?;
            Answered { receipt, charged: true }
        }
    };
    session.close().await?;
    Ok(answered)
}

/// Waits until the other server has left its receipt.
async fn receipt_of_the_other(client: &Client) -> Result<String, Wrong> {
    let mut watch = client.cache(CACHE).watch().key(KEY).with_state().await?;
    let text = |value: &[u8]| (value != RUNNING).then(|| String::from_utf8_lossy(value).into_owned());
    while let Some(item) = watch.next().await {
        let receipt = match item.map_err(|end| Wrong::from(end.into_error()))? {
            WatchItem::State { entries, .. } => entries.iter().find_map(|entry| text(&entry.value)),
            WatchItem::Changes { changes, .. } => changes.iter().find_map(|change| match &change.kind {
                ChangeKind::Put { value, .. } => text(value),
                ChangeKind::Removed { .. } => None,
            }),
            WatchItem::Progress { .. } => None,
        };
        if let Some(receipt) = receipt {
            return Ok(receipt);
        }
    }
    Err(Wrong::Story("the watch ended".to_owned()))
}
