//! Watching the tree: whoever applies what is told to what was told first has the tree as it is (HOUSE-6).

use std::collections::BTreeMap;

use soong::{ActorView, Runtime, Start, TreeEvent, TreeWatch};

use crate::support::{
    model::{Scripted, Turn},
    world::World,
};

/// The tree as one who watches knows it, flat.
#[derive(Default)]
struct Known {
    actors: BTreeMap<String, ActorView>,
    dropped: u64,
    snapshots: usize,
}

impl Known {
    async fn hear(&mut self, watch: &mut TreeWatch) -> bool {
        match watch.next().await {
            None => return false,
            Some(TreeEvent::Snapshot { tree, dropped }) => {
                self.actors = flat(*tree);
                self.dropped = dropped;
                self.snapshots += 1;
            }
            Some(TreeEvent::Changed { changed, gone, dropped }) => {
                assert!(!changed.is_empty() || !gone.is_empty(), "what is told has changed");
                for id in gone.iter() {
                    self.actors.remove(id);
                }
                for view in changed.iter() {
                    assert!(view.children.is_empty(), "where it hangs is said by its parent");
                    self.actors.insert(view.actor_id.clone(), view.clone());
                }
                self.dropped = dropped;
            }
        }
        true
    }
}

fn flat(tree: ActorView) -> BTreeMap<String, ActorView> {
    let mut flat = BTreeMap::new();
    let mut open = vec![tree];
    while let Some(mut view) = open.pop() {
        open.append(&mut view.children);
        flat.insert(view.actor_id.clone(), view);
    }
    flat
}

async fn driven(runtime: &Runtime, session: &str) {
    let run = runtime.start(Start::driven("work").session(session)).await.unwrap();
    run.finish("done");
    run.wait().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn house_6_who_watches_knows_the_tree_and_who_is_slow_is_told_how_much_was_left_out() {
    let mut world = World::open(Scripted::new(|_| Turn::say("done"))).await;
    let runtime = world.runtime();
    let (mut quick, mut slow) = (runtime.watch_tree(), runtime.watch_tree());
    let (mut known, mut late) = (Known::default(), Known::default());
    assert!(known.hear(&mut quick).await && late.hear(&mut slow).await);
    assert_eq!(known.actors, flat(runtime.tree().unwrap()), "the first is a picture of all");
    {
        let mut work = std::pin::pin!(async {
            for session in 0..50 {
                driven(runtime, &format!("s{session}")).await;
            }
        });
        loop {
            tokio::select! {
                () = work.as_mut() => break,
                is_there = known.hear(&mut quick) => assert!(is_there),
            }
        }
    }
    assert_eq!((known.dropped, known.snapshots), (0, 1), "who reads loses nothing");
    // Fewer are kept than have come by now.
    while late.dropped == 0 {
        assert!(late.hear(&mut slow).await);
    }
    assert_eq!(late.snapshots, 2, "a whole picture stands for what was left out");
    assert!((0..50).all(|session| late.actors.contains_key(&format!("session:s{session}"))));
    // What was done last is told to both.
    driven(runtime, "last").await;
    for (known, watch) in [(&mut known, &mut quick), (&mut late, &mut slow)] {
        for _ in 0..1_000 {
            if known.actors == flat(runtime.tree().unwrap()) {
                break;
            }
            assert!(known.hear(watch).await);
        }
        assert_eq!(known.actors, flat(runtime.tree().unwrap()));
    }
    world.shut().await;
    while known.hear(&mut quick).await {}
    assert!(!late.hear(&mut slow).await || !late.hear(&mut slow).await, "a watch ends with the runtime");
    world.finish().await;
}
