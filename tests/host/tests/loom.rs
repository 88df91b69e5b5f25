// SPDX-License-Identifier: GPL-2.0

//! Every order in which a registration and the end of its memory can meet.
//!
//! loom runs each model again and again, each time with the threads interleaved in another way,
//! and finds deadlocks. See `world` for what else is found.

mod world;

use std::sync::{
    atomic::{AtomicUsize, Ordering::Relaxed},
    Arc,
};

use loom::{
    model::Builder,
    thread::{spawn, JoinHandle},
};
use world::{as_process, Region, Rules, World, RULES};

const OLD_CORE: Rules = Rules {
    unmaps: false,
    ..RULES
};

/// That of MLNX_OFED 4.9.
const OLDEST_CORE: Rules = Rules {
    releases: true,
    ..OLD_CORE
};

/// How often threads lose the processor against their will, where to look at everything takes too
/// long: with two threads, with three, and with three that do much.
const TWO: Option<usize> = Some(5);
const THREE: Option<usize> = Some(3);
const MUCH: Option<usize> = Some(2);

fn explore(name: &str, bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let interleavings = Arc::new(AtomicUsize::new(0));
    let counter = interleavings.clone();
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(bound);
    builder.check(move || {
        counter.fetch_add(1, Relaxed);
        model();
    });
    let bound = match builder.preemption_bound {
        Some(bound) => format!("up to {bound} preemptions"),
        None => "exhaustive".into(),
    };
    println!(
        "loom {name}: {} interleavings, {bound}",
        interleavings.load(Relaxed)
    );
}

fn free(world: &Arc<World>, memory: usize) -> JoinHandle<()> {
    let world = world.clone();
    spawn(move || world.free(memory))
}

fn claimed(world: &Arc<World>, memory: usize) -> Arc<Region> {
    world.claim(memory).unwrap()
}

fn mapped(world: &Arc<World>, memory: usize) -> Arc<Region> {
    let region = claimed(world, memory);
    assert!(region.map());
    region
}

/// The memory is freed while `act` is under way with what `prepare` left. If `act` leaves a region,
/// it is deregistered in the end.
fn against_free<T: 'static>(
    name: &str,
    bound: Option<usize>,
    rules: Rules,
    prepare: fn(&Arc<World>) -> T,
    act: fn(&Arc<World>, T) -> Option<Arc<Region>>,
) {
    explore(name, bound, move || {
        let world = World::new(rules);
        let prepared = prepare(&world);
        let freeing = free(&world, 0);
        let left = act(&world, prepared);
        freeing.join().unwrap();
        if let Some(region) = left {
            region.deregister();
        }
        world.nothing_is_left();
    });
}

fn nothing(_: &Arc<World>) {}

fn claim(world: &Arc<World>) -> Arc<Region> {
    claimed(world, 0)
}

fn claim_and_map(world: &Arc<World>) -> Arc<Region> {
    mapped(world, 0)
}

fn acquire_and_release(world: &Arc<World>, (): ()) -> Option<Arc<Region>> {
    world.claim(0)?.release();
    None
}

fn map_region(_: &Arc<World>, region: Arc<Region>) -> Option<Arc<Region>> {
    region.map().then_some(region)
}

fn deregister(_: &Arc<World>, region: Arc<Region>) -> Option<Arc<Region>> {
    region.deregister();
    None
}

fn deregister_elsewhere(world: &Arc<World>, region: Arc<Region>) -> Option<Arc<Region>> {
    as_process(2);
    deregister(world, region)
}

fn live(world: &Arc<World>, (): ()) -> Option<Arc<Region>> {
    let region = world.claim(0)?;
    if region.map() {
        region.deregister();
    }
    None
}

#[test]
fn acquire() {
    against_free("acquire", None, RULES, nothing, acquire_and_release);
}

#[test]
fn acquire_of_unusable_pages() {
    let rules = Rules {
        usable: false,
        ..RULES
    };
    against_free(
        "acquire_of_unusable_pages",
        None,
        rules,
        nothing,
        acquire_and_release,
    );
}

#[test]
fn map() {
    against_free("map", None, RULES, claim, map_region);
}

#[test]
fn map_with_old_core() {
    against_free("map_with_old_core", None, OLD_CORE, claim, map_region);
}

#[test]
fn failing_map() {
    let rules = Rules {
        maps: false,
        ..RULES
    };
    against_free("failing_map", None, rules, claim, map_region);
}

#[test]
fn no_activation() {
    let rules = Rules {
        activates: false,
        ..RULES
    };
    against_free("no_activation", TWO, rules, claim, map_region);
}

#[test]
fn no_activation_with_old_core() {
    let rules = Rules {
        activates: false,
        ..OLD_CORE
    };
    against_free("no_activation_with_old_core", TWO, rules, claim, map_region);
}

#[test]
fn deregistration() {
    against_free("deregistration", None, RULES, claim_and_map, deregister);
}

#[test]
fn deregistration_with_old_core() {
    against_free(
        "deregistration_with_old_core",
        None,
        OLD_CORE,
        claim_and_map,
        deregister,
    );
}

#[test]
fn deregistration_with_oldest_core() {
    against_free(
        "deregistration_with_oldest_core",
        None,
        OLDEST_CORE,
        claim_and_map,
        deregister,
    );
}

#[test]
fn deregistration_in_another_process() {
    against_free(
        "deregistration_in_another_process",
        None,
        RULES,
        claim_and_map,
        deregister_elsewhere,
    );
}

#[test]
fn failing_put() {
    let rules = Rules {
        puts: false,
        ..RULES
    };
    against_free("failing_put", None, rules, claim_and_map, deregister);
}

#[test]
fn second_callback() {
    let rules = Rules {
        callbacks: 2,
        ..RULES
    };
    against_free("second_callback", TWO, rules, claim_and_map, deregister);
}

#[test]
fn whole_life() {
    against_free("whole_life", TWO, RULES, nothing, live);
}

#[test]
fn whole_life_with_old_core() {
    against_free("whole_life_with_old_core", TWO, OLD_CORE, nothing, live);
}

/// Somebody else pins while a pin is given back and its memory freed.
fn reuse(name: &str, rules: Rules) {
    explore(name, THREE, move || {
        let world = World::new(rules);
        let dying = claimed(&world, 0);
        let freeing = free(&world, 0);
        let other = world.clone();
        let pinning = spawn(move || claimed(&other, 1));
        dying.release();
        freeing.join().unwrap();
        let region = pinning.join().unwrap();
        assert_eq!(world.pins(), 1);
        region.release();
        world.nothing_is_left();
    });
}

#[test]
fn address_used_again() {
    reuse("address_used_again", RULES);
}

#[test]
#[should_panic(expected = "somebody else's pin is put")]
fn address_used_again_without_turns() {
    let rules = Rules {
        turns: false,
        ..RULES
    };
    reuse("address_used_again_without_turns", rules);
}

/// Two registrations of the memory that is freed.
fn twice_registered(name: &str, rules: Rules) {
    explore(name, MUCH, move || {
        let world = World::new(rules);
        let one = mapped(&world, 0);
        let two = mapped(&world, 0);
        let freeing = free(&world, 0);
        let deregistering = spawn(move || one.deregister());
        two.deregister();
        deregistering.join().unwrap();
        freeing.join().unwrap();
        world.nothing_is_left();
    });
}

#[test]
fn two_registrations() {
    twice_registered("two_registrations", RULES);
}

#[test]
fn two_registrations_with_old_core() {
    twice_registered("two_registrations_with_old_core", OLD_CORE);
}

/// Memory is freed while one region is mapped, or ended, and another is acquired: all locks at
/// once.
fn among_others(
    name: &str,
    rules: Rules,
    prepare: fn(&Arc<World>) -> Arc<Region>,
    act: fn(&Arc<World>, Arc<Region>) -> Option<Arc<Region>>,
) {
    explore(name, THREE, move || {
        let world = World::new(rules);
        let region = prepare(&world);
        let freeing = free(&world, 0);
        let other = world.clone();
        let acquiring = spawn(move || claimed(&other, 1));
        let left = act(&world, region);
        freeing.join().unwrap();
        acquiring.join().unwrap().release();
        if let Some(region) = left {
            region.deregister();
        }
        world.nothing_is_left();
    });
}

#[test]
fn map_among_others() {
    among_others("map_among_others", RULES, claim, map_region);
}

#[test]
fn deregistration_among_others() {
    among_others(
        "deregistration_among_others",
        RULES,
        claim_and_map,
        deregister,
    );
}

#[test]
fn deregistration_among_others_with_old_core() {
    among_others(
        "deregistration_among_others_with_old_core",
        OLD_CORE,
        claim_and_map,
        deregister,
    );
}

/// Memory of two registrations is freed by two threads, and one of them is deregistered.
#[test]
fn two_frees() {
    explore("two_frees", THREE, || {
        let world = World::new(RULES);
        let one = mapped(&world, 0);
        let two = mapped(&world, 1);
        let freeing = [free(&world, 0), free(&world, 1)];
        one.deregister();
        for thread in freeing {
            thread.join().unwrap();
        }
        two.deregister();
        world.nothing_is_left();
    });
}

/// `rmmod` comes as soon as it can.
fn unload<T: Send + 'static>(
    name: &str,
    rules: Rules,
    prepare: fn(&Arc<World>) -> T,
    act: fn(&Arc<World>, T) -> Option<Arc<Region>>,
) {
    explore(name, THREE, move || {
        let world = World::new(rules);
        let prepared = prepare(&world);
        let freeing = free(&world, 0);
        let other = world.clone();
        let acting = spawn(move || assert!(act(&other, prepared).is_none()));
        let unloaded = world.unload();
        freeing.join().unwrap();
        acting.join().unwrap();
        world.nothing_is_left();
        assert!(unloaded || world.unload());
    });
}

#[test]
fn unload_and_acquire() {
    unload("unload_and_acquire", RULES, nothing, acquire_and_release);
}

#[test]
fn unload_and_deregistration() {
    unload(
        "unload_and_deregistration",
        RULES,
        claim_and_map,
        deregister,
    );
}

/// The pin outlives the registration: so must the module.
#[test]
fn unload_and_orphan() {
    unload(
        "unload_and_orphan",
        RULES,
        claim_and_map,
        deregister_elsewhere,
    );
}

#[test]
#[should_panic(expected = "Causality violation")]
fn unload_that_does_not_wait() {
    let rules = Rules {
        waits: false,
        ..RULES
    };
    unload(
        "unload_that_does_not_wait",
        rules,
        claim_and_map,
        deregister,
    );
}
