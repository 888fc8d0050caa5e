"""The cases of ``golden_record.py``: a name and the words of the command line, by kind."""

MACROS = """
@dp       algorithm=dp_fl epsilon=null rounds=4
@sound    algorithm=dp_fl rounds=4 epsilon=3 algorithm.sample_rate=0.2
@ldp      algorithm=ldp_fedsgd partition.clients=12 noise_schedule=constant epsilon=null rounds=4
@server   algorithm=cdp_fedavg partition.clients=20 algorithm.client_rate=0.3 rounds=4 epsilon=null
          algorithm.batch_size=20
@whole    noise_schedule=calibrated noise_schedule.epsilon_per_draw=null epsilon=4
@cdp      @server noise_schedule.noise_multiplier=1.5
@quant    clipper=quantile clipper.initial_clip_norm=0.3 clipper.bit_noise=9
@hist     clipper=median_histogram clipper.updates=2 clipper.update_interval=2
@response @quant clipper.bit_mechanism=randomized_response clipper.noised_by=client
          clipper.bit_epsilon=0.5
@pld      accountant=pld accountant.discretization=1e-3
@few      partition.clients=10 partition.records=100 delta=0.01 clipper.clip_norm=2
@wei      algorithm=wei_cdp @few rounds=8 epsilon=10
@crd      algorithm=wei_crd @few rounds=12 epsilon=30
@printed  budget_view=published accountant=published algorithm.sensitivity=weights
@optimal  algorithm=wei_cdp_optimal @few epsilon=50 algorithm.search.rounds=[2,5]
          algorithm.search.seeds=[0,1]
@ncdp     algorithm=naseri_cdp partition=iid partition.clients=10 epsilon=8 rounds=4
          algorithm.client_rate=0.4 noise_schedule.noise_multiplier=3
@nldp     algorithm=naseri_ldp partition=iid partition.clients=10 epsilon=50 rounds=4
          algorithm.clients_per_round=3 noise_schedule.noise_multiplier=1
@pattern  attack=pixel_pattern attack.trigger.size=2 attack.attackers=2
@spent    rounds=null epsilon=12 partition.clients=20
@play     dataset=shakespeare dataset.path=../data dataset.length=12 model.hidden=8
          model.embedding=6 model.layers=1
@tweets   dataset=sentiment140 dataset.path=../data dataset.length=10 model.hidden=8
          model.embedding=6 model.layers=1 dataset.min_records_per_client=2
          dataset.validation_records=10
@mnist    dataset=mnist dataset.path=$DATA dataset.download=false
"""

RUNS = """
# record level: clippers
dp_fl                  algorithm=dp_fl rounds=5
adap_sound             algorithm=adap_dpfl rounds=5
adap_scalar            algorithm=adap_dpfl epsilon=null rounds=4 clipper.reading=scalar
adap_vector            algorithm=adap_dpfl epsilon=null rounds=4 clipper.reading=vector
adap_unclipped         algorithm=adap_dpfl epsilon=null rounds=4 clipper.reading=unclipped
adap_first_bound       algorithm=adap_dpfl rounds=3 clipper.initial_clip_norm=0.7 clipper.bit_noise=9
adap_filter_ends       algorithm=adap_dpfl epsilon=0.6 noise_schedule.beta=0.9
adap_published         algorithm=adap_dpfl budget_view=published accountant=published rounds=5
adap_as_printed        algorithm=adap_dpfl budget_view=published algorithm.claim=as_printed rounds=4
                       accountant=published clipper.reading=unclipped
dp_automatic           @dp clipper=automatic
dp_poly                @dp clipper=poly clipper.power=2
dp_quantile            @dp @quant
dp_quantile_on_top     @dp @quant clipper.split=false
dp_quantile_linear     @dp @quant clipper.update=linear clipper.noised_by=client
dp_histogram           @dp @hist
dp_histogram_edges     @dp @hist clipper.edges=[0.01,0.1,1]
dp_no_clipper          @dp clipper=none noise_schedule=none
dp_no_noise            @dp noise_schedule=none
# record level: schedules
dp_exponential         @dp noise_schedule=exponential noise_schedule.beta=0.9
dp_step                @dp noise_schedule=step noise_schedule.interval=2
dp_decay               @dp noise_schedule=validation_decay noise_schedule.beta=0.9 rounds=6
dp_decay_algorithm1    @dp noise_schedule=validation_decay noise_schedule.beta=0.9 rounds=6
                       noise_schedule.decay_index=algorithm1
dp_decay_gdp           @sound noise_schedule=validation_decay accountant=gdp algorithm.sample_rate=1
                       noise_schedule.beta=0.9 epsilon=6 rounds=null noise_schedule.noise_multiplier=8
dp_decay_zcdp          @sound noise_schedule=validation_decay accountant=zcdp algorithm.sample_rate=1
                       noise_schedule.beta=0.9 epsilon=6 rounds=null noise_schedule.noise_multiplier=8
dp_calibrated          @sound noise_schedule=calibrated
dp_calibrated_draws    @sound noise_schedule=calibrated noise_schedule.draws=9 rounds=6
dp_calibrated_steps    @sound noise_schedule=calibrated algorithm.local_steps=2
dp_calibrated_hist     @sound noise_schedule=calibrated @hist
dp_calibrated_pld      @sound noise_schedule=calibrated accountant=pld epsilon=1
dp_uniform             @sound noise_schedule=uniform_budget accountant=gdp algorithm.sample_rate=1
dp_recalculated        @sound noise_schedule=recalculated accountant=gdp algorithm.sample_rate=1
                       rounds=8
# record level: accountants, samplers, participation, optimizers
dp_pld                 @sound accountant=pld
dp_prv                 @sound accountant=prv
dp_rdp_classical       @sound accountant.orders=2..64 accountant.conversion=classical
dp_gdp                 @sound accountant=gdp algorithm.sample_rate=1 noise_schedule.noise_multiplier=9
dp_zcdp                @sound accountant=zcdp algorithm.sample_rate=1
                       noise_schedule.noise_multiplier=9
dp_pld_published       @sound accountant=pld budget_view=published
dp_published           @sound accountant=published budget_view=published
dp_published_ends      @sound accountant=published budget_view=published rounds=null epsilon=1.2
dp_budget_ends         algorithm=dp_fl rounds=null epsilon=0.8
dp_fixed_size          @sound algorithm.sampling=fixed_size
dp_fixed_size_pld      @sound algorithm.sampling=fixed_size accountant=pld partition=iid
dp_max_lot_size        @sound algorithm.max_lot_size=9 accountant=pld
dp_sampled             @sound algorithm.participation=sampled algorithm.clients_per_round=3
dp_sampled_ends        @sound algorithm.participation=sampled algorithm.clients_per_round=3 epsilon=1
                       rounds=null
dp_sampled_last_small  @sound algorithm.participation=sampled algorithm.clients_per_round=4 epsilon=1
                       rounds=null partition.clients=6 partition=iid
dp_dirichlet           @sound partition=dirichlet partition.clients=5 partition.alpha=0.3
dp_dirichlet_ends      @sound partition=dirichlet algorithm.sampling=fixed_size rounds=null
                       partition.clients=5 algorithm.sample_rate=0.5 epsilon=2
dp_shards              @sound partition=shards partition.clients=8
dp_fixed_partition     @sound partition=fixed_size partition.clients=5 partition.records=30
dp_local_steps         @sound algorithm.local_steps=3
dp_local_steps_adap    algorithm=adap_dpfl rounds=3 algorithm.local_steps=2
dp_local_steps_quant   @sound @quant algorithm.local_steps=2
dp_per_layer           @dp clipper=per_layer algorithm.local_steps=2 rounds=4
dp_sgd                 @sound algorithm.optimizer=sgd algorithm.learning_rate=0.5
dp_adam_reset          @sound algorithm.optimizer_state=reset algorithm.local_steps=2
dp_opacus              @dp runtime.engine=opacus
dp_opacus_cnn          @dp runtime.engine=opacus model=cnn rounds=2
dp_no_diagnostics      @sound runtime.diagnostics=false
dp_seeds               @sound seed=3 noise_seed=7 partition.seed=1 model.seed=2
dp_not_normalised      @sound dataset.normalize=false
dp_mlp                 @dp model=mlp model.hidden=12
dp_cnn                 @dp model=cnn rounds=2
dp_diverges            @dp algorithm.optimizer=sgd algorithm.learning_rate=1e38 rounds=12
dp_huge_noise          @dp noise_schedule.noise_multiplier=1e6 algorithm.optimizer=sgd rounds=3
# no privacy
fedavg                 algorithm=fedavg rounds=4
scaffold               algorithm=dp_scaffold rounds=4 epsilon=null
fedavg_proximal        algorithm=fedavg rounds=4 algorithm.local_steps=3 algorithm.proximal=0.5
fedavg_steps           algorithm=fedavg rounds=4 algorithm.local_steps=3 algorithm.optimizer=sgd
fedavg_fixed_size      algorithm=fedavg rounds=4 algorithm.sampling=fixed_size algorithm.max_lot_size=null
fedavg_lots            algorithm=fedavg rounds=4 algorithm.max_lot_size=7
fedavg_sampled         algorithm=fedavg rounds=4 algorithm.participation=sampled
                       algorithm.clients_per_round=3 algorithm.optimizer_state=reset
fedavg_mlp_whole       algorithm=fedavg rounds=3 algorithm.sample_rate=1 model=mlp
fedavg_diverges        algorithm=fedavg rounds=9 algorithm.optimizer=sgd algorithm.learning_rate=1e38
fedsgd                 algorithm=fedsgd rounds=4 partition.clients=10
fedsgd_adam_lots       algorithm=fedsgd rounds=4 partition.clients=20 algorithm.optimizer=adam
                       algorithm.clients_per_round=9 algorithm.sample_rate=0.5
fedsgd_diverges        algorithm=fedsgd rounds=4 partition.clients=5 algorithm.learning_rate=1e38
norm_bounding          algorithm=norm_bounding rounds=4 partition.clients=20
weak_dp                algorithm=weak_dp rounds=3 partition.clients=10
# local DP of clients
ldp_defaults           algorithm=ldp_fedsgd rounds=4 partition.clients=12
ldp_constant           @ldp algorithm.clients_per_round=5
ldp_automatic          @ldp clipper=automatic
ldp_poly_adam          @ldp clipper=poly algorithm.optimizer=adam
ldp_quantile           @ldp @quant
ldp_quantile_client    @ldp @quant clipper.noised_by=client clipper.split=false
ldp_quantile_linear    @ldp @quant clipper.update=linear
ldp_response           @ldp @response @pld
ldp_response_lots      @ldp @response accountant=rdp algorithm.sample_rate=0.5
ldp_histogram          @ldp @hist
ldp_adap               @ldp clipper=adap
ldp_adap_scalar        @ldp clipper=adap clipper.reading=scalar
ldp_adap_vector        @ldp clipper=adap clipper.reading=vector
ldp_adap_unclipped     @ldp clipper=adap clipper.reading=unclipped
ldp_no_clipper         @ldp clipper=none noise_schedule=none
ldp_exponential        @ldp noise_schedule=exponential noise_schedule.beta=0.8
ldp_step               @ldp noise_schedule=step noise_schedule.interval=2
ldp_decay              @ldp noise_schedule=validation_decay noise_schedule.beta=0.9 epsilon=6
                       rounds=null
ldp_per_draw           @ldp noise_schedule=calibrated noise_schedule.epsilon_per_draw=8
ldp_calibrated         @ldp @whole algorithm.clients_per_round=5
ldp_calibrated_hist    @ldp @whole @hist
ldp_calibrated_zcdp    @ldp @whole accountant=zcdp
ldp_uniform            @ldp noise_schedule=uniform_budget epsilon=20
ldp_recalculated       @ldp noise_schedule=recalculated epsilon=20 rounds=8
ldp_budget_ends        @ldp epsilon=3 rounds=null algorithm.clients_per_round=5
ldp_published          @ldp epsilon=3 rounds=9 budget_view=published accountant=published
ldp_mlp_large          @ldp model=mlp algorithm.learning_rate=0.5
# central DP of clients
cdp_constant           @cdp
cdp_quantile           @cdp @quant
cdp_quantile_on_top    @cdp @quant clipper.split=false clipper.update=linear
cdp_histogram          @cdp @hist epsilon=3 rounds=null
cdp_automatic          @cdp clipper=automatic
cdp_adap               @cdp clipper=adap
cdp_poly               @cdp clipper=poly
cdp_no_noise           @server noise_schedule=none clipper=none
cdp_per_layer          @cdp clipper=per_layer
cdp_per_layer_quantile @cdp clipper=per_layer_quantile
cdp_momentum           @cdp algorithm.optimizer=momentum averaging=tail averaging_start=2
cdp_adagrad            @cdp algorithm.optimizer=adagrad algorithm.learning_rate=0.05
cdp_adam_bc            @cdp algorithm.optimizer=dp_adam_bc algorithm.learning_rate=0.01 averaging=ema
cdp_proximal           @cdp algorithm.local_epochs=3 algorithm.proximal=0.5
cdp_adam               @cdp algorithm.optimizer=adam algorithm.learning_rate=0.01
cdp_epochs             @cdp algorithm.local_epochs=2
cdp_whole              @cdp algorithm.batch_size=null partition=dirichlet
cdp_nobody             @cdp algorithm.client_rate=1e-9
cdp_pld                @cdp accountant=pld epsilon=2
cdp_prv                @cdp accountant=prv epsilon=3 rounds=null
cdp_published          @cdp accountant=published budget_view=published epsilon=2
cdp_calibrated         @server noise_schedule=calibrated epsilon=4
cdp_decay              @cdp noise_schedule=validation_decay noise_schedule.beta=0.9 epsilon=4
cdp_no_diagnostics     @cdp runtime.diagnostics=false runtime.snapshot_interval=2
cdp_not_finite         @server algorithm.local_learning_rate=1e38 clipper=none noise_schedule=none
cdp_opacus_mlp         @cdp runtime.engine=opacus model=mlp
ncdp                   @ncdp
ncdp_as_printed        @ncdp algorithm.noise=as_printed
ncdp_quantile          @ncdp @quant
ncdp_adam_pld          @ncdp algorithm.optimizer=adam accountant=pld algorithm.learning_rate=0.01
ncdp_whole             @ncdp algorithm.batch_size=null algorithm.local_epochs=2 rounds=null epsilon=4
nldp                   @nldp
nldp_as_printed        @nldp algorithm.noise=as_printed
nldp_all               @nldp algorithm.clients_per_round=null algorithm.local_epochs=2
nldp_adap              @nldp clipper=adap epsilon=null
nldp_quantile          @nldp @quant epsilon=null
nldp_decay             @nldp noise_schedule=validation_decay noise_schedule.beta=0.9
nldp_pld_ends          @nldp @spent accountant=pld
nldp_dirichlet         @nldp partition=dirichlet epsilon=9 rounds=6
# Wei et al.
wei_cdp_one_step       @wei
wei_cdp_update         @wei algorithm.sensitivity=update algorithm.local_steps=2
wei_cdp_weights        @wei @printed algorithm.local_steps=3
wei_cdp_sampled        @wei algorithm.clients_per_round=6
wei_cdp_sampled_pub    @wei @printed algorithm.clients_per_round=6
wei_cdp_exact          @wei @printed noise_schedule.form=exact
wei_cdp_constant       @wei noise_schedule=constant noise_schedule.noise_multiplier=9 accountant=rdp
wei_cdp_svm            @wei model=svm dataset=adult dataset.path=$DATA dataset.download=false
wei_cdp_quantile       algorithm=wei_cdp partition.clients=10 partition.records=100 rounds=8
                       clipper=quantile clipper.split=false algorithm.sensitivity=update
wei_cdp_dirichlet      algorithm=wei_cdp partition=dirichlet partition.clients=5 @printed rounds=3
                       partition.min_records=5 algorithm.records=5
wei_crd                @crd
wei_crd_published      @crd @printed
wei_crd_beta           @crd @printed noise_schedule.discount=beta
wei_crd_printed_at     @crd @printed noise_schedule.discount_at=printed
wei_crd_noised         @crd epsilon=5 noise_schedule.trigger=noised
wei_crd_noised_update  @crd epsilon=5 noise_schedule.trigger=noised algorithm.sensitivity=update
wei_crd_exact          @crd @printed noise_schedule.trigger=exact
wei_crd_sampled        @crd @printed algorithm.clients_per_round=6
wei_crd_large_steps    @crd @printed algorithm.learning_rate=1e38
wei_optimal            @optimal
wei_optimal_golden     @optimal algorithm.search.method=golden algorithm.search.seeds=[0]
                       algorithm.search.rounds=[2,7] algorithm.search.criterion=test_accuracy
# attacks
attack_fedavg          algorithm=fedavg rounds=4 partition=iid @pattern attack.boost=replacement
                       attack.participation=fixed
attack_cdp             @ncdp @pattern
attack_cdp_follow      @ncdp @pattern attack.dp_steps=follow attack.participation=fixed
attack_cdp_fedavg      @cdp @pattern attack.boost=3 attack.norm_bound=0.5 epsilon=4
attack_cdp_no_diag     @ncdp @pattern runtime.diagnostics=false
attack_ldp             @nldp @pattern attack.participation=fixed
attack_ldp_ends        @nldp @spent @pattern attack.attackers=5
attack_ldp_fixed_ends  @nldp @spent @pattern attack.attackers=5 attack.participation=fixed
attack_ldp_follow      @nldp @pattern attack.dp_steps=follow attack.first_round=2 attack.every=2
attack_dp_fl           @sound @pattern attack.boosted=malicious_part attack.boost=2
attack_adap            algorithm=adap_dpfl rounds=3 @pattern attack.dp_steps=follow
attack_wei             @crd @pattern
attack_wei_noised      @crd epsilon=5 noise_schedule.trigger=noised @pattern
attack_bounded         algorithm=norm_bounding rounds=4 partition.clients=20 clipper.clip_norm=0.3
                       attack=label_flip attack.trigger.writers=4 attack.boost=replacement
attack_weak_dp         algorithm=weak_dp rounds=3 partition.clients=10 @pattern
                       attack.attackers=null attack.attacker_fraction=0.2
attack_semantic        algorithm=norm_bounding rounds=3 partition.clients=10 attack=semantic
                       attack.trigger.indices=[5,11,70,71,300,301] attack.trigger.target=2
attack_nobody          @ncdp @pattern attack.attackers=0
# text, and real files
text_characters        @dp @play partition.min_records=3
text_words_private     @dp @play dataset.level=word dataset.vocabulary=private
text_private_published algorithm=dp_fl rounds=3 @play dataset.level=word dataset.vocabulary=private
                       budget_view=published
text_cdp               algorithm=cdp_fedavg @play partition=natural rounds=3 algorithm.client_rate=0.5
text_tweets            @dp @tweets
text_tweets_bounded    algorithm=norm_bounding @tweets rounds=3 algorithm.client_rate=0.5
                       attack=sentiment attack.trigger.insert=true partition=natural
                       dataset.vocabulary_words=[miley,jonas,mcfly,david]
text_words_attack      algorithm=norm_bounding @play rounds=3 algorithm.client_rate=0.5 attack=words
                       dataset.level=word dataset.vocabulary=private partition=natural
                       "attack.trigger.sentences=[to be or not]" attack.trigger.test_records=20
mnist_cnn              @dp @mnist rounds=2
mnist_writers          algorithm=fedavg @mnist partition=natural partition.clients=40 model=mlp
                       rounds=3 runtime.snapshot_interval=1 audit=property:writer
# audits and snapshots
audit_membership       @sound audit=membership runtime.snapshot_interval=2
audit_by_heart         algorithm=fedavg model=mlp partition=fixed_size partition.clients=24
                       partition.records=8 rounds=6 algorithm.sample_rate=1 algorithm.local_steps=3
                       runtime.snapshot_interval=3 audit=membership
audit_property         algorithm=fedavg partition=iid partition.clients=40 rounds=3
                       dataset.normalize=false runtime.snapshot_interval=1
                       audit=[membership,property:intensity]
audit_property_private @sound partition=dirichlet partition.clients=40 partition.min_records=5
                       runtime.snapshot_interval=1 audit=property:label:3
audit_property_central @ncdp partition.clients=60 dataset.normalize=false rounds=4
                       runtime.snapshot_interval=1 audit=property:intensity
audit_quantile         @cdp @quant runtime.snapshot_interval=2 audit=membership
"""

OWN_CODE = """
own_clipper            @dp --config-dir ../own/yamls clipper=own
own_model              @dp --config-dir ../own/yamls model=own
own_algorithm          @sound --config-dir ../own/yamls algorithm=own
two_processes          algorithm=dp_fl rounds=4 partition.clients=40 chunk=5 runtime.workers=2
two_processes_clients  @cdp chunk=2 runtime.workers=2
distributed            algorithm=ddp_fedavg partition.clients=20 rounds=4 algorithm.shares=discrete_gaussian
                       algorithm.tolerated_dropouts=2 algorithm.dropout=0.05
"""

ALGORITHMS = """
adap_dpfl      algorithm=adap_dpfl rounds=3
cdp_fedavg     @cdp rounds=3
ddp_fedavg     algorithm=ddp_fedavg rounds=3 partition.clients=12
dp_fl          @dp rounds=3
dp_fl_server   algorithm=dp_fl_server rounds=3 epsilon=null
dp_ftrl        algorithm=dp_ftrl rounds=3 partition.clients=12 algorithm.min_separation=2
dp_scaffold    algorithm=dp_scaffold rounds=3 epsilon=null
fedavg         algorithm=fedavg rounds=3
fedsgd         algorithm=fedsgd rounds=3 partition.clients=10
ldp_fedsgd     @ldp rounds=3
naseri_cdp     @ncdp rounds=3 algorithm.client_rate=0.6
naseri_ldp     @nldp rounds=3 algorithm.clients_per_round=6
norm_bounding  algorithm=norm_bounding rounds=3 partition.clients=12 algorithm.client_rate=0.6
weak_dp        algorithm=weak_dp rounds=3 partition.clients=12 algorithm.client_rate=0.6
wei_cdp        @wei rounds=3
wei_cdp_optimal @optimal
wei_crd        @crd rounds=3
"""
"""Every algorithm, on digits. Each goes with every rule and attack below."""

RULES = """
bucketed_median caf centered_clipping dnc flame fltrust foolsgold geometric_median krum median multi_krum
rlr trimmed_mean
"""

ATTACKS = """
a3fl            attack=a3fl attack.trigger.size=2 attack.trigger_epochs=3
alie            attack=alie
alie_optimal    attack=alie_optimal
dba             attack=dba attack.attackers=2
edge_case       attack=edge_case
gaussian        attack=gaussian
ipm             attack=ipm
ipm_optimal     attack=ipm_optimal
label_flip      attack=label_flip attack.trigger.writers=2
label_reversal  attack=label_reversal
mimic           attack=mimic
min_max         attack=min_max
min_sum         attack=min_sum
neurotoxin      attack=neurotoxin attack.trigger.size=2
pixel_pattern   @pattern
semantic        attack=semantic attack.trigger.indices=[5,11,70,71,300,301] attack.trigger.target=2
sign_flip       attack=sign_flip
"""
"""Attacks on images. Those on text and on CIFAR-10 have cases of their own above."""

FIGURES = """
adap_dpfl  fig4
wei        discount fig5 fig6 fig7 fig8 fig9 fig10 fig11 fig12 fig13 fig14 sound
naseri     backdoor_cifar10 backdoor_emnist backdoor_reddit backdoor_sentiment140 membership property
"""
"""One figure with an archive, and the trained figures that have none, in their quick form. Those of a work
share a folder, and so their runs."""

OWN_FILES = {
    "own/own_clipper.py": """
import torch

from fedpriv.privacy.clippers import Clipper


class Own(Clipper):
    def __init__(self, first):
        self.first = first

    def clip_norm(self, round_index, holders):
        return torch.full((len(holders),), self.first / (1 + round_index), device=holders.device)

    def factors(self, norms, clip_norms):
        return clip_norms / (norms + 0.01)
""",
    "own/own_model.py": """
from torch import nn

from fedpriv.models.base import ModelFactory


class Own(ModelFactory):
    name = "own"

    def build(self, input_shape, classes):
        return self._seeded(
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, classes))
        )
""",
    "own/own_algorithm.py": """
from fedpriv.algorithms import DpFl
from fedpriv.algorithms.server_steps import WeightedAverage


class Momentum(WeightedAverage):
    def __init__(self, model, records_per_client, momentum):
        super().__init__(model, records_per_client)
        self.momentum, self.velocity = momentum, model.flat.new_zeros(model.size)

    def apply(self, cohort, uploads):
        self.velocity.mul_(self.momentum).add_(self.average(cohort, uploads))
        self.model.flat.add_(self.velocity)

    def state_dict(self):
        return {"velocity": self.velocity.clone()}

    def load_state_dict(self, state):
        self.velocity.copy_(state["velocity"])


class Own(DpFl):
    def __init__(self, *args, server_momentum=0.9, **settings):
        super().__init__(*args, **settings)
        self.server_momentum = server_momentum

    def server_step(self, context):
        return Momentum(context.model, context.data.records_per_client, self.server_momentum)
""",
    "own/yamls/clipper/own.yaml": "# own\n_target_: own_clipper.Own\nfirst: 2.0\n",
    "own/yamls/model/own.yaml": "# own\n_target_: own_model.Own\nseed: ${seed}\n",
    "own/yamls/algorithm/own.yaml": """# @package _global_
# own
defaults:
  - dp_fl
  - _self_
protocol: dp_fl
algorithm:
  _target_: own_algorithm.Own
  name: own
  server_momentum: 0.5
""",
    "own/schedule.csv": "noise_multiplier,sample_rate,steps\n3,0.1,20\n2,0.05,10\n",
    "own/figure.yaml": """base: algorithm=dp_fl rounds=20 noise_schedule=calibrated
x: {epsilon: [1, 2]}
curves: {algorithm.learning_rate: [0.05, 0.2]}
seeds: 2
metric: accuracy
baselines:
  - {label: guessing, value: 10}
""",
}
"""Code, YAMLs and tables of a user's own: path below the working folder → text."""

FAST = """
dp_fl adap_sound dp_quantile dp_histogram dp_per_layer dp_pld dp_prv dp_fixed_size dp_sampled_ends dp_cnn
dp_opacus fedavg scaffold ldp_response ldp_histogram ldp_decay cdp_quantile cdp_adam_bc cdp_calibrated ncdp
nldp_all wei_cdp_sampled wei_crd_noised wei_optimal attack_cdp_follow attack_ldp text_words_private
audit_membership resumed_quantile resumed_nldp resumed_crd publish_dp own_* two_processes distributed
refused_* account_* calibrate_* sweep search verify_dp figure_own of_dp_fl_krum of_fedavg_flame
of_ldp_fedsgd_trimmed_mean of_naseri_ldp_alie of_dp_ftrl of_dp_fl_server of_fedavg_fltrust
of_cdp_fedavg_bucketed_median of_naseri_cdp_min_max
"""
"""The cases for every commit: names and patterns."""

RESUMED = """
resumed_quantile       @sound @quant
resumed_cdp            @cdp @quant algorithm.optimizer=adam epsilon=3
resumed_ldp_hist       @ldp @hist algorithm.clients_per_round=5
resumed_response       @ldp @response @pld
resumed_nldp           @nldp @spent
resumed_crd            @crd epsilon=5 noise_schedule.trigger=noised
resumed_crd_validation @crd @printed
resumed_wei_sampled    @wei @printed algorithm.clients_per_round=6
resumed_optimal        @optimal
resumed_attack         @ncdp @pattern attack.participation=fixed attack.dp_steps=follow
resumed_attack_ends    @nldp @spent @pattern attack.attackers=5
resumed_adap           algorithm=adap_dpfl epsilon=0.6 noise_schedule.beta=0.9
resumed_adap_sampled   algorithm=adap_dpfl algorithm.participation=sampled rounds=5 epsilon=3000
                       algorithm.clients_per_round=4 clipper=constant algorithm.local_steps=2
resumed_snapshots      @cdp runtime.snapshot_interval=1
resumed_no_diagnostics @ldp clipper=poly algorithm.optimizer=adam runtime.diagnostics=false
resumed_text           @dp @play dataset.level=word dataset.vocabulary=private
"""

PUBLISH = """
publish_dp             algorithm=dp_fl epsilon=1 rounds=4 publish=true
publish_cdp            @cdp epsilon=2 publish=true publish_test_metrics=true
"""

REFUSED = """
refused_fedavg_clips        algorithm=fedavg clipper=constant
refused_fedavg_budget       algorithm=fedavg epsilon=2
refused_noise_unclipped     algorithm=dp_fl clipper=none
refused_nothing_ends        epsilon=null rounds=null
refused_no_noise_budget     algorithm=dp_fl noise_schedule=none
refused_unclipped_sound     clipper.reading=unclipped
refused_exact_losses        @crd noise_schedule.trigger=exact
refused_adaptive_pld        accountant=pld
refused_gdp_on_lots         algorithm=dp_fl accountant=gdp
refused_response_gdp        @ldp @response
refused_response_records    @dp @response
refused_response_central    @cdp @response
refused_client_central      @cdp @quant clipper.noised_by=client
refused_hist_local_steps    @dp @hist algorithm.local_steps=2
refused_printed_quantile    @ncdp @quant algorithm.noise=as_printed
refused_printed_automatic   @nldp clipper=automatic algorithm.noise=as_printed
refused_no_claim            algorithm=fedavg accountant=published
refused_claim_sound         algorithm=dp_fl accountant=published
refused_uniform_on_lots     @sound noise_schedule=uniform_budget
refused_uniform_accountant  @wei accountant=rdp
refused_two_budgets         @wei noise_schedule.epsilon=5
refused_wei_steps           @wei algorithm.local_steps=2
refused_wei_clients         @wei algorithm.clients=1000
refused_wei_smallest        algorithm=wei_cdp partition=dirichlet partition.clients=5 @printed
                            algorithm.records=1000 rounds=2
refused_search_sound        @optimal budget_view=sound accountant=gdp
refused_search_schedule     @optimal noise_schedule=constant
refused_too_little          @ldp epsilon=0.01 noise_schedule.noise_multiplier=2
refused_too_little_records  algorithm=dp_fl epsilon=0.001
refused_too_little_adap     algorithm=adap_dpfl epsilon=0.001
refused_too_many_clients    @ldp algorithm.clients_per_round=99
refused_attack_fedsgd       algorithm=fedsgd @pattern
refused_attack_adam         @ncdp algorithm.optimizer=adam @pattern attack.boost=replacement
refused_attack_data         @ncdp attack=words
refused_attack_all          @ncdp @pattern attack.attackers=10
refused_model               algorithm=dp_fl model=lstm_lm
refused_publish_no_noise    algorithm=fedavg publish=true
refused_publish_attack      @ncdp @pattern publish=true
refused_publish_audit       @sound publish=true audit=membership
refused_audit_snapshots     @sound audit=property:intensity
refused_private_vocabulary  algorithm=dp_fl @play dataset.vocabulary=private rounds=2
refused_natural_calibrated  algorithm=dp_fl @mnist partition=natural noise_schedule=calibrated rounds=9
                            algorithm.sampling=fixed_size
refused_unknown_key         algorithm=dp_fl +clipper.clip_nrom=2
refused_resume              algorithm=dp_fl resume=nowhere
refused_draws_missing       @sound noise_schedule=calibrated rounds=null
refused_svm_ten_classes     @dp model=svm
refused_partition_too_large @wei partition.records=1000
"""

COMMANDS = """
account_flags      account --noise-multiplier 3 --sample-rate 0.013 --steps 7921 --delta 1e-5
account_json       account --noise-multiplier 3 --sample-rate 0.013 --steps 100 --delta 1e-4,1e-6 --json
account_fixed      account --noise-multiplier 3 --sample-rate 0.1 --steps 50 --delta 1e-5
                   --sampling without_replacement --records 500 --json
account_none       account --noise-multiplier 9 --steps 50 --delta 1e-5 --sampling none --json
account_cut        account --noise-multiplier 3 --sample-rate 0.1 --steps 50 --delta 1e-5
                   --records 500 --max-lot-size 60 --json
account_classical  account --noise-multiplier 3 --sample-rate 0.013 --steps 7921 --delta 1e-5
                   --accountant rdp --orders 2..64 --conversion classical
calibrate_noise    calibrate --epsilon 2 --delta 1e-5 --sample-rate 0.013 --steps 7921
calibrate_steps    calibrate --epsilon 2 --delta 1e-5 --sample-rate 0.013 --noise-multiplier 3
calibrate_rate     calibrate --epsilon 2 --delta 1e-5 --steps 500 --noise-multiplier 3 --accountant rdp
calibrate_gdp      calibrate --epsilon 2 --delta 1e-5 --steps 500 --sampling none --json
account_csv        account --noise-multiplier 3 --sample-rate 0.013 --steps 100 --delta 1e-5 --table csv
account_none_csv   account --noise-multiplier 9 --steps 50 --delta 1e-5 --sampling none --table csv
account_schedule   account --schedule ../own/schedule.csv --delta 1e-5 --json
calibrate_rdp      calibrate --epsilon 2 --delta 1e-5 --steps 500 --sample-rate 0.01 --accountant rdp --json
calibrate_pld      calibrate --epsilon 2 --delta 1e-5 --steps 500 --sample-rate 0.01 --accountant pld --json
calibrate_prv      calibrate --epsilon 2 --delta 1e-5 --steps 500 --sample-rate 0.01 --accountant prv --json
calibrate_zcdp     calibrate --epsilon 2 --delta 1e-5 --steps 500 --sampling none --accountant zcdp --json
calibrate_gdp_json calibrate --epsilon 2 --delta 1e-5 --steps 500 --sampling none --accountant gdp --json
verify_dp          verify algorithm=dp_fl --json verify.json
verify_cdp         verify algorithm=cdp_fedavg clipper=quantile --json verify.json
verify_ldp         verify algorithm=ldp_fedsgd partition.clients=12 --json verify.json
search             train -m hydra/sweeper=search hydra.sweeper.epsilon=3 hydra.sweeper.trials=3
                   hydra.sweeper.seed=0 hydra.sweeper.sampler=random algorithm=dp_fl rounds=5
                   noise_schedule=validation_decay noise_schedule.beta=1 noise_schedule.noise_multiplier=12
                   algorithm.learning_rate=interval(0.01,1) hydra.sweep.dir=sweep
                   runtime.plots=false runtime.device=cpu runtime.threads=1 runtime.output_dir=outputs
figure_own         figure ../own/figure.yaml runtime.device=cpu runtime.threads=1
figure_dry         figure ldp_clipping/poly --quick --dry-run
figure_dry_wei     figure wei/fig6 --quick --dry-run
figure_computed    figure wei/theorem2
sweep              train -m algorithm=dp_fl rounds=2 seed=0,1 epsilon=1,2 hydra.sweep.dir=sweep
                   runtime.plots=false runtime.device=cpu runtime.threads=1
groups             list
"""

THEN = """
sweep                  runs sweep --csv - ; runs sweep --means --table csv ; runs sweep --json ;
                       plot sweep --points epsilon --out points.png ;
                       plot sweep --y test_loss --out losses.png
dp_pld                 audit epsilon run --canaries 40 --device cpu --csv audit.csv
two_processes          account --run run --json
dp_fl                  account --run run --json
dp_exponential         account --run run --delta 1e-4,1e-6
dp_max_lot_size        account --run run --json
dp_published           account --run run --view published --json
ldp_histogram          account --run run --json
ldp_response           account --run run --json
cdp_quantile           account --run run --view published --json
ncdp_as_printed        account --run run --json
wei_cdp_sampled_pub    account --run run --view published --json
wei_optimal            account --run run --json
attack_ldp_ends        account --run run --json
text_words_private     account --run run --json
audit_by_heart         audit membership run --nonmembers held_out --records 100 --device cpu
audit_property_private audit property run --property label:5 --clients 30 --device cpu
"""
"""Commands that follow a run, in its folder, with semicolons between them."""
