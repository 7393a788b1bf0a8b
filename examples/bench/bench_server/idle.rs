//! Memory of a server with many idle sessions and many silent WebSockets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{
    Failed,
    client::{Client, text},
    model,
    server::Server,
};

/// Number of runs started at the same time.
const AT_ONCE: usize = 64;

pub(crate) async fn measure(sessions: usize, sockets: usize) -> Result<(), Failed> {
    let server = Server::start(&model::start().await?)?;
    let client = Client::new(&server.url, &server.token)?;
    client.start("first", "hello").await?;
    settle(&client).await?;
    println!("a server after one run: {:.1} MiB", mib(&server)?);
    let next = Arc::new(AtomicUsize::new(0));
    // The first half fills the allocator's reserves; the second half shows what the sessions keep.
    for sessions in [sessions / 2, sessions] {
        begin(&client, &next, sessions).await?;
        settle(&client).await?;
        println!(
            "with {sessions} idle sessions after one run each: {:.1} MiB",
            mib(&server)?
        );
    }
    let mut open = Vec::with_capacity(sockets);
    for at in 0..sockets {
        let mut socket = client
            .watch(&format!(
                "/api/traces/s{}/watch?since_event_id=999999",
                at % sessions
            ))
            .await?;
        text(&mut socket).await.ok_or("no greeting")?;
        open.push(socket);
    }
    println!("and {sockets} WebSockets: {:.1} MiB", mib(&server)?);
    Ok(())
}

/// Runs one prompt in each session up to this number.
async fn begin(client: &Client, next: &Arc<AtomicUsize>, sessions: usize) -> Result<(), Failed> {
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let client = client.clone();
            let next = Arc::clone(next);
            tokio::spawn(async move {
                while next.load(Relaxed) < sessions {
                    client
                        .start(&format!("s{}", next.fetch_add(1, Relaxed)), "hello")
                        .await?;
                }
                Ok::<_, Failed>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Waits until no session has actors.
async fn settle(client: &Client) -> Result<(), Failed> {
    loop {
        let tree = client.get("/api/tree").await?.to_string();
        if !tree.contains("\"kind\":\"session\"") {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn mib(server: &Server) -> Result<f64, Failed> {
    Ok(server.resident_kib()? as f64 / 1_024.0)
}
